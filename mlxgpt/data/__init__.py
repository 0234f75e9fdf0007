"""Files -> documents -> a split -> cached ids -> `Batch`. numpy inside; never imports mlx."""

from mlxgpt.data.batch import Batch, batch_bytes
from mlxgpt.data.config import DataConfig
from mlxgpt.data.corpus import Corpus, absolute, open_corpus
from mlxgpt.data.document import Document
from mlxgpt.data.evaluation import EvaluationBatches, evaluation_batches
from mlxgpt.data.prepare import prepare
from mlxgpt.data.split import Split
from mlxgpt.data.token_file import TokenFile
from mlxgpt.data.token_set import TokenSet
from mlxgpt.data.windows import WindowBatches

__all__ = [
    "Batch",
    "Corpus",
    "DataConfig",
    "Document",
    "EvaluationBatches",
    "Split",
    "TokenFile",
    "TokenSet",
    "WindowBatches",
    "absolute",
    "batch_bytes",
    "evaluation_batches",
    "open_corpus",
    "prepare",
]
