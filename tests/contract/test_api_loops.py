"""The background loops of the api: one moment without a free descriptor, or a disk that fails, ends none of them."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from api_server import serving
from waiting import deadline

from trainmaster import daemons, troubles
from trainmaster.server.jobs import forecast_records
from trainmaster.server.process import app, background, idle_stop
from trainmaster.server.runtime import metric_writer


def test_a_loop_goes_on_after_an_error_and_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: the loop logs, waits longer and longer, and goes on; what is wrong is told while it lasts."""
    pauses: list[float] = []
    told: list[list[str]] = []
    results: list[Any] = [1.0, OSError(errno.EMFILE, "Too many open files"), ValueError("odd"), 1.0, None]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        told.append([one.text.split(":")[0] for one in troubles.own.said()])

    async def work() -> float | None:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    troubles.own.forget()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(background.supervised("trying", work))
    assert pauses == [0.0, 1.0, background.FIRST_S, 2 * background.FIRST_S, 1.0]
    assert told == [[], [], ["trying failed"], ["trying failed"], []]
    assert not results


def test_every_loop_of_a_server_survives_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: taking up what agents left, recording forecasts and trimming go on after an OSError."""
    calls = {"take_up": 0, "forecast": 0, "trim": 0}

    def failing(name: str, real: Any) -> Any:
        def once(*given: Any) -> Any:
            calls[name] += 1
            if calls[name] == 2:
                raise OSError(errno.EMFILE, "Too many open files")
            return real(*given)

        return once

    monkeypatch.setattr(app, "_IMPORT_S", 0.02)
    monkeypatch.setattr(app, "_TRIM_S", 0.02)
    monkeypatch.setattr(forecast_records, "BEAT_S", 0.02)
    monkeypatch.setattr(background, "FIRST_S", 0.02)
    monkeypatch.setattr(metric_writer, "import_points", failing("take_up", metric_writer.import_points))
    monkeypatch.setattr(forecast_records, "foreseen", failing("forecast", forecast_records.foreseen))
    with serving(tmp_path / "home") as api:
        trim = failing("trim", api.services.inbox.trim)
        monkeypatch.setattr(api.services.inbox, "trim", trim)
        deadline(lambda: min(calls.values()) >= 4, "every loop to have gone on")
        deadline(lambda: not [one for one in troubles.own.said() if one.topic.startswith("loop")], "the trouble to be over")


def test_a_job_that_was_accepted_on_the_way_out_brings_the_server_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R24: a server that idles out a moment after it answered 201 is started again, and the job runs."""
    done: list[str] = []
    monkeypatch.setattr(daemons, "stop", lambda home: done.append("stop"))
    monkeypatch.setattr(daemons, "start", lambda home: done.append("start"))
    with serving(tmp_path / "home") as api:
        idle_stop.stop_unless_asked(api.home)
        assert done == ["stop"]
        api.submit()
        idle_stop.stop_unless_asked(api.home)
        assert done == ["stop", "stop", "start"]
        api.take_up()
        idle_stop.stop_unless_asked(api.home)
        assert done[3:] == ["stop"]
