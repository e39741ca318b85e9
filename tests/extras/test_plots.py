"""The pictures of a simulation, drawn by matplotlib (the extra `plots`)."""

import os
from pathlib import Path

from trainmaster.cli.app import run as tm
from trainmaster.cli.simulate import report_plots

LINES = "".join(f"{n} {n * 10} 5 {3000 - 40 * n} {1 + n % 4} -1 -1 2 4000 -1 1 7 {n % 2} 3 1 1 -1 -1\n" for n in range(1, 60))


def test_a_report_has_a_picture_of_every_chart(tmp_path: Path) -> None:
    assert report_plots.available()
    (tmp_path / "small.swf").write_text("; MaxProcs: 4\n" + LINES)
    report = tmp_path / "report"
    assert tm(["simulate", str(tmp_path / "small.swf"), "--compare", "fifo,srtf,fair-share", "--eta", "30", "--report", str(report)]) == 0
    page = (report / "index.html").read_text()
    pictures = {name for name in os.listdir(report) if name.endswith(".png")}
    usual = ("wait", "completion", "queue", "utilisation", "fairness", "slowdown", "preemptions", "lost")
    assert pictures == {f"{name}.png" for name in (*usual, "eta", "held")}
    assert page.count("<section>") == len(pictures)
    assert all(
        (report / name).read_bytes().startswith(b"\x89PNG") and (report / name).stat().st_size > 10_000 for name in pictures
    )
