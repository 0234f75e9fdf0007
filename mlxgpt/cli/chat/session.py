"""Entries -> answers, streamed, and a conversation that remembers them."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

from mlxgpt import seeding
from mlxgpt.cli.chat.commands import Commands
from mlxgpt.cli.chat.conversation import Conversation
from mlxgpt.cli.chat.entries import Entries, Entry
from mlxgpt.cli.chat.interrupt import StopAnswer
from mlxgpt.cli.prompt import ChatForm
from mlxgpt.cli.writers import Writer, follow
from mlxgpt.cli.writing_report import WritingReport
from mlxgpt.errors import MLXGPTError, MLXGPTWarning
from mlxgpt.infer.sampling import SamplingParams

_SEEDS = 2**31 - 1


class ChatSession:
    """One conversation with one model.

    For every answer the whole conversation is put through the template anew, and the writer is
    given all of its ids. What it has in its cache is found there as far as the ids agree.
    """

    def __init__(
        self,
        make_writer: Callable[[], Writer],
        form: ChatForm,
        params: SamplingParams,
        conversation: Conversation,
        *,
        context: int | None,
        interactive: bool,
        report: bool,
    ) -> None:
        """`params` hold for every answer, each of which has its own seed, made of theirs. `context`
        is how many tokens the model sees at once. In an `interactive` session mistakes are said and
        it goes on; otherwise they are raised. `report` adds a line about speed to each answer."""
        self._make_writer = make_writer
        self._writer = make_writer()
        self._form = form
        self._params = replace(params, stop_ids=params.stop_ids | form.stop_ids)
        self._conversation = conversation
        self._context = context
        self._interactive = interactive
        self._report = report
        self._commands = Commands(conversation, self._check)
        self._answers = 0

    def run(self, entries: Entries) -> None:
        """Answer until there are no more entries, or one says to leave."""
        while (entry := self._next(entries)) is not None:
            try:
                if self._act(entry):
                    return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                self._say("")
                self._writer = self._make_writer()  # who knows what it was doing
            except MLXGPTError as e:
                self._tell(e)
                if self._conversation.turns and self._interactive:
                    self._say("(/undo takes back the last turn, /reset begins anew)")
        if self._interactive:
            self._say("")

    def _next(self, entries: Entries) -> Entry | None:
        """Return the next entry; None: leave, as Ctrl-C twice at a terminal asks for."""
        hinted = False
        while True:
            try:
                return entries.next()
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                if hinted:
                    return None
                hinted = True
                self._say("\n(Ctrl-C again, Ctrl-D or /exit leaves)")
            except MLXGPTError as e:
                self._tell(e)

    def _act(self, entry: Entry) -> bool:
        """Do what was asked for; return whether to leave."""
        text = entry.text
        if not entry.quoted and text.startswith("/"):
            if not text.startswith("//"):
                reply = self._commands.run(text)
                if reply.text:
                    self._say(reply.text)
                return reply.leaves
            text = text[1:]
        self._answer(text)
        return False

    def _answer(self, question: str) -> None:
        """Write the answer to a question, and remember both if anything was written."""
        ids = self._ids(question)
        seed = seeding.derive(self._params.seed, "answer", self._answers) & _SEEDS
        report = WritingReport(self._writer.statistics)
        request = self._writer.add(ids, replace(self._params, seed=seed))
        self._answers += 1
        answer, reason = self._stream(request, report)
        sys.stdout.write("\n")
        sys.stdout.flush()
        if answer or reason is not None:
            self._conversation.record(question, answer)
        else:
            self._say("(stopped before the first word; the question is forgotten)")
        if self._report and report.written:
            ended = {"length": "ended by --tokens", None: "stopped"}.get(reason, "")
            self._say(report.line(self._writer.statistics, len(ids), more=ended, known=True))

    def _stream(self, request: int, report: WritingReport) -> tuple[str, str | None]:
        """Print the answer as it comes; return it, and why it ended: None if it was stopped."""
        pieces: list[str] = []
        reason = None
        try:
            with StopAnswer(hold=self._interactive) as stop:
                for output in follow(self._writer, request, 1, lambda: stop.requested):
                    report.take(output)
                    pieces.append(output.text)
                    sys.stdout.write(output.text)
                    sys.stdout.flush()
                    reason = output.finish_reason
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._writer = self._make_writer()  # it was torn in the middle of a step
        return "".join(pieces), reason

    def _ids(self, question: str) -> list[int]:
        before = self._conversation.left_out
        ids = self._conversation.ids(question, self._form.ids, self._most())
        if self._conversation.left_out > before:
            self._note(  # which is shown once
                f"the conversation is longer than the {self._context:,} tokens that the model sees "
                "at a time: from now on its oldest turns are left out"
            )
        elif self._context is not None and len(ids) > self._context:
            self._note(
                f"the question alone has {len(ids):,} tokens; the model sees the last "
                f"{self._context:,} at a time"
            )
        return ids

    def _most(self) -> int | None:
        """Return how many tokens may be asked, so that the model also sees its own answer."""
        if self._context is None:
            return None
        return self._context - min(self._params.max_tokens, self._context // 2)

    def _check(self) -> None:
        self._form.ids(self._conversation.messages("A question."))

    def _note(self, text: str) -> None:
        warnings.warn(text, MLXGPTWarning, stacklevel=2)

    def _tell(self, error: MLXGPTError) -> None:
        if not self._interactive:
            raise error
        self._say(f"error: {' '.join(str(error).split())}")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
