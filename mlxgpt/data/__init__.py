"""Files -> documents -> a split -> cached ids, or text -> `Batch`. numpy inside; never mlx."""

from mlxgpt.data.batch import Batch, batch_bytes
from mlxgpt.data.config import DataConfig
from mlxgpt.data.corpus import Corpus, absolute, open_corpora, open_corpus
from mlxgpt.data.document import Document
from mlxgpt.data.evaluation import EvaluationBatches, evaluation_batches
from mlxgpt.data.prefetch import Prefetcher
from mlxgpt.data.prepare import StreamSet, prepare, prepare_stream
from mlxgpt.data.split import Split
from mlxgpt.data.streaming import StreamingWindows
from mlxgpt.data.text_map import TextMap
from mlxgpt.data.token_file import TokenFile
from mlxgpt.data.token_set import TokenSet
from mlxgpt.data.windows import WindowBatches

__all__ = [
    "Batch",
    "Corpus",
    "DataConfig",
    "Document",
    "EvaluationBatches",
    "Prefetcher",
    "Split",
    "StreamSet",
    "StreamingWindows",
    "TextMap",
    "TokenFile",
    "TokenSet",
    "WindowBatches",
    "absolute",
    "batch_bytes",
    "evaluation_batches",
    "open_corpora",
    "open_corpus",
    "prepare",
    "prepare_stream",
]
