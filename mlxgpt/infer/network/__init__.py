"""A GPT as the engine and the draft model run it: the tokens of many texts, side by side."""

from mlxgpt.infer.network.network import GPTNetwork, Network, check_batchable, network_for

__all__ = ["GPTNetwork", "Network", "check_batchable", "network_for"]
