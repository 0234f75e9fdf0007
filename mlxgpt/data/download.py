"""A pinned address -> a checked file in the cache. A file with another content is never kept."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlxgpt.atomic import new_file
from mlxgpt.errors import DataError

TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Download:
    """A file on the network whose content is known beforehand."""

    url: str
    sha256: str
    size: int
    """Bytes."""

    def fetch(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Path:
        """Return `path`, downloading it first unless the right file is there already.

        The file appears whole or not at all. `progress(done, total)` counts bytes. Raises
        `DataError` if the network fails or the content is not the pinned one.
        """
        if self._is_at(path):
            return path
        remedy = f"put the file at {path} yourself, or give a text file of your own as the corpus"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as temporary:
                self._load(temporary, progress)
        except urllib.error.HTTPError as e:
            with e:  # it holds the connection
                raise DataError(f"cannot download {self.url} to {path} ({e}); {remedy}") from e
        except (OSError, http.client.HTTPException) as e:
            reason = e.reason if isinstance(e, urllib.error.URLError) else e
            raise DataError(f"cannot download {self.url} to {path} ({reason}); {remedy}") from e
        except _WrongContent as e:
            raise DataError(
                f"{self.url} has another content than expected ({e}), so it was not kept; {remedy}"
            ) from e
        return path

    def _is_at(self, path: Path) -> bool:
        try:
            return (
                path.stat().st_size == self.size
                and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256
            )
        except OSError:
            return False

    def _load(self, temporary: Path, progress: Callable[[int, int], None] | None) -> None:
        digest = hashlib.sha256()
        done = 0
        with (
            urllib.request.urlopen(self.url, timeout=TIMEOUT_SECONDS) as answer,
            open(temporary, "wb") as out,
        ):
            while chunk := answer.read(1 << 16):
                done += len(chunk)
                if done > self.size:
                    raise _WrongContent(f"more than {self.size} bytes")
                digest.update(chunk)
                out.write(chunk)
                if progress:
                    progress(done, self.size)
        if done < self.size:
            raise _WrongContent(f"{done} bytes instead of {self.size}")
        if digest.hexdigest() != self.sha256:
            raise _WrongContent(f"sha256 {digest.hexdigest()} instead of {self.sha256}")


class _WrongContent(Exception):
    """What came is not what was pinned."""
