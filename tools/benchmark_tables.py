"""The benchmark's tables as Markdown, for docs/benchmark.md."""

from pathlib import Path

from comparison import NOT_YET, markdown
from understudy.paper import benchmark_table
from understudy.paper.benchmark_published import SOURCES


def make_tables(results: Path) -> dict[str, str]:
    """The tables by name."""
    learners = benchmark_table.read_learners(results)
    header, published = benchmark_table.published_table()
    sources = [[name, source.citation, source.protocol] for name, source in SOURCES.items()]
    absent = [line.split(": ", 1) for line in benchmark_table.missing(learners)]
    return {
        "benchmark": markdown(benchmark_table.header(), benchmark_table.table_rows(learners) or [[NOT_YET]]),
        "benchmark-training": markdown(
            ["learner", "demonstrations", *benchmark_table.benchmark_tasks()],
            benchmark_table.training_rows(learners) or [[NOT_YET]],
        ),
        "benchmark-missing": markdown(["learner", "missing"], absent or [["nothing", ""]]),
        "benchmark-published": markdown(header, published),
        "benchmark-sources": markdown(["source", "publication", "protocol"], sources),
    }
