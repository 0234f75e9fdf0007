from mlxgpt.cli.writing_report import WritingReport
from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.engine.statistics import Statistics


def test_the_line_counts_what_came_since_the_report_began() -> None:
    now = 10.0
    statistics = Statistics(drafted_tokens=100, accepted_tokens=1, generated_tokens=50)
    report = WritingReport(statistics, lambda: now)
    assert report.line(statistics, 3) == "[3 prompt tokens, 0 written]"
    for seconds, count in ((0.02, 0), (0.02, 2), (1.0, 4), (1.0, 6)):
        now += seconds
        report.take(Output(0, 0, [1] * count, "", None, None))
    now += 100  # what comes after the last token does not count
    assert (
        report.line(statistics, 3)
        == "[3 prompt tokens, 12 written; first after 40 ms, then 5.0 tok/s]"
    )
    statistics.drafted_tokens += 20
    statistics.accepted_tokens += 7
    statistics.generated_tokens += 12
    statistics.decoding_rows += 5
    statistics.shared_tokens += 2
    line = report.line(statistics, 3, texts=2, more="seed 1", known=True)
    assert line == (
        "[3 prompt tokens (2 of them known), 12 written in 2 texts; first after 40 ms, "
        "then 5.0 tok/s; 35 % of guesses kept, 2.4 tokens a pass; seed 1]"
    )
