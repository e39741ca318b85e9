"""Invalid, truncated and unordered traces, and cluster expressions and files: each error says what, where, and what to do."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors import SpecError, TrainmasterError, UsageError
from trainmaster.model.cluster import Cluster, Project, Quota
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.simulator.cluster import changed, cluster, described
from trainmaster.simulator.formats import load
from trainmaster.simulator.trace import Arrival, Trace, gang, gpu_nodes, impossible, processors

SWF = "1 0 -1 100 4 -1 -1 4 120 -1 1 7 1 3 1 1 -1 -1\n"
MURI = "job_id,num_gpu,submit_time,iterations,iteration_time\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def refused(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.hint or "expected" in caught.value.message or "not a job" in caught.value.message
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty"),
        ("\n\n", "1: the first line is empty"),
        (SWF.replace("100", "nan"), "1: not a job: field 4 is nan, which is not finite"),
        (SWF.replace("100", "inf"), "1: not a job: field 4 is inf, which is not finite"),
        (SWF + SWF.replace("1 0", "2 -5", 1), "2: not a job: the submit time (field 2) is -5; it must be 0 or more"),
        (SWF + SWF, "2: job 1 occurs twice"),
        (SWF.replace("100 4", "100 9000000"), "1: not a job: 9000000 processors; the maximum is 1,000,000"),
        ("; MaxProcs: many\n" + SWF, "1: MaxProcs is 'many'"),
        (MURI + "a,nan,5,1,1\n", "2: not a job: num_gpu is nan, which is not finite"),
        (MURI + "a,1.5,5,1,1\n", "2: not a job: num_gpu is 1.5; it must be a whole number of at most 1,000,000"),
        (MURI + "a,1,-5,1,1\n", "2: not a job: submit_time is -5; it must be 0 or more"),
        (MURI + "a,1,5\n", "2: not a job: it has no iterations"),
        (MURI + "a,1,5,1,1\na,1,6,1,1\n", "3: job a occurs twice"),
        (PHILLY + "yesterday,66.0,1,66.0,vc\n", "2: not a job: timestamp is 'yesterday', not a date and time"),
        (PHILLY + "2017-10-09 07:01:55,long,1,66.0,vc\n", "2: not a job: duration is 'long', not a number"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n", "1: unknown trace format"),
        (b"\xff\xfe\x00", " cannot be read: it is not UTF-8 text"),
        ("x" * (1 << 20) + SWF, "1: unknown trace format"),
        (SWF + "7 " * (1 << 20), "2: a line of more than 1,048,576 characters"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert refused(tmp_path / "t.csv", text).startswith(said)


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(MURI.replace("num_gpu,", ""))
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "t.csv")
    assert caught.value.hint == "it lacks these columns of Muri: num_gpu"


def test_an_archive_that_is_cut_off_is_read_up_to_where_it_goes(tmp_path: Path) -> None:
    draw = random.Random(1)
    text = "".join(SWF.replace("1 0", f"{n} {draw.randrange(10**9)}", 1) for n in range(20_000))
    path = tmp_path / "t.swf.gz"
    path.write_bytes(gzip.compress(text.encode())[:-40_000])
    with pytest.raises(UsageError, match=r"cannot be read after line [\d,]+: the archive is cut off"):
        load(path)
    path.write_bytes(b"no archive")
    with pytest.raises(UsageError, match="cannot be read: Not a gzipped file"):
        load(path)


@given(
    st.binary(max_size=400), st.sampled_from(["", SWF, MURI, PHILLY, '{"form":"trainmaster-history","version":1,"nodes":[]}\n'])
)
def test_whatever_a_file_holds_there_is_an_answer(tmp_path_factory: pytest.TempPathFactory, rest: bytes, head: str) -> None:
    path = tmp_path_factory.mktemp("any") / "t"
    path.write_bytes(head.encode() + rest)
    told = ""
    try:
        told = str(path) * bool(load(path).arrivals)
    except TrainmasterError as error:
        told = error.message
    assert str(path) in told


def test_lines_in_any_order_are_one_trace(tmp_path: Path) -> None:
    lines = [SWF.replace("1 0", f"{n} {at}", 1) for n, at in ((1, 50), (2, 0), (3, 50), (4, 20))]
    (tmp_path / "t.swf").write_text("".join(lines))
    assert [(one.id, one.submit_s) for one in load(tmp_path / "t.swf").arrivals] == [("2", 0), ("4", 20), ("1", 50), ("3", 50)]


def test_what_no_cluster_state_could_hold_is_left_out_with_the_reason() -> None:
    trace = Trace(
        "t", (Arrival("a", 0.0, 1.0, gang(16, 8), line=2), Arrival("b", 0.0, 1.0, gang(24, 8), line=3)), gpu_nodes(2, 8)
    )
    assert impossible(trace, Cluster()) == {"b": "asks for 3 nodes with 8 GPUs, 8 CPUs; there are 2 such nodes"}
    few = Cluster(projects=(Project("default", quotas=(("gpus", Quota(0, 8, 8)),)),))
    assert impossible(trace, few) == {
        "a": "asks for 16 GPUs; project default may hold 8 GPUs",
        "b": "asks for 3 nodes with 8 GPUs, 8 CPUs; there are 2 such nodes",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("8x8:a100, 4x4:h100", "8 nodes of 8 a100, 4 nodes of 4 h100"),
        ("2 × 4", "2 nodes of 4 GPUs"),
        ("128", "128 nodes of 1 CPU"),
    ],
)
def test_a_cluster_is_told_in_a_word(text: str, told: str) -> None:
    sites = cluster(text)
    assert (described(sites), len({site.name for site in sites})) == (told, len(sites))


@pytest.mark.parametrize("text", ["", "8x", "0x8", "a100", "8x8:", "-1", "9999999", "8x8:a100;4x4"])
def test_a_cluster_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a group of nodes"):
        cluster(text)


def test_a_cluster_file_says_more(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("- {name: big, count: 2, gpus: A100:8, cpus: 64, memory: 512GiB, pool: train}\n- {cpus: 16}\n")
    sites = cluster(str(path))
    assert [site.name for site in sites] == ["big0", "big1", "g1-n0"]
    assert sites[0].cell._asdict() | {} == {
        **sites[0].cell._asdict(), "kinds": ("a100",), "whole": (8,), "cpus": 64_000, "memory": 512 * 2**30, "pool": "train",
    }  # fmt: skip
    assert described(sites) == "2 nodes of 8 a100, 1 node of 16 CPUs"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: 3\n", ":1:1: expected a list of nodes, got a mapping"),
        ("", ":1:1: expected a list of nodes, got nothing"),
        ("[]\n", ":1:1: expected a list of nodes, got an empty one"),
        ("- {count: 2, gpu: 8}\n", ":1:14: [0].gpu: there is no such field; did you mean 'gpus'?"),
        ("- gpus: 8\n- gpus: a100\n", ":2:9: [1].gpus: expected a number of GPUs, or KIND:NUMBER such as a100:8, got 'a100'"),
        ("- {gpus: 8, count: 0}\n", ":1:20: [0].count: expected a whole number from 1 to 1,000,000, got the number 0"),
        ("- {name: n, gpus: 8}\n- {name: n, gpus: 8}\n", "two nodes are named n0"),
        ("- {gpus: 8\n", "not YAML"),
    ],
)
def test_a_cluster_file_that_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        cluster(str(path))
    assert said in str(caught.value)
    assert "one entry:" in caught.value.hint


def test_nodes_are_added_as_their_like_are_and_taken_from_the_end() -> None:
    sites = cluster("8x8:a100, 2x4:a100, 4x4:h100")
    more = changed(sites, ["a100: 2 nodes", "a100: 1x4", "b200: 1x16"], [])
    assert described(more) == "10 nodes of 8 a100, 4 nodes of 4 h100, 3 nodes of 4 a100, 1 node of 16 b200"
    assert more[-1].cell.cpus == 16_000  # as many for each GPU as most others have
    assert len({site.name for site in more}) == len(more)
    fewer = changed(sites, [], ["a100: 1 node", "h100: 4x4"])
    assert [site.name for site in sites if site not in fewer] == ["g1-n1", *(f"g2-n{n}" for n in range(4))]
    assert described(changed(processors(4), ["cpu: 4 nodes"], ["cpu: 1 node"])) == "7 nodes of 1 CPU"


@pytest.mark.parametrize(
    ("add", "remove", "said"),
    [
        (["a100"], [], "--add 'a100' is not understood"),
        (["h100: 2 nodes"], [], "--add 'h100: 2 nodes': there is no node of that kind to copy"),
        ([], ["a100: 9 nodes"], "--remove 'a100: 9 nodes': there are 8 a100 nodes"),
        ([], ["a100: 8 nodes"], "no node is left"),
        ([], ["a100: 0 nodes"], "--remove 'a100: 0 nodes' is not understood"),
    ],
)
def test_changes_that_cannot_be_are_refused(add: list[str], remove: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(cluster("8x8:a100"), add, remove)
    assert (said in caught.value.message, bool(caught.value.hint)) == (True, True)


@given(st.integers(1, 200), st.integers(1, 16))
def test_a_gang_is_of_as_few_nodes_as_can_have_equal_parts(gpus: int, per_node: int) -> None:
    ask = gang(gpus, per_node)
    assert (ask.nodes * ask.each.gpus, ask.each.gpus <= per_node) == (gpus, True)
    assert not any(gpus % n == 0 and gpus // n <= per_node for n in range(1, ask.nodes))
    assert ask is gang(gpus, per_node)
    assert ask_of(ask.nodes, Shape(gpus=ask.each.gpus, cpus=ask.each.gpus * 1000)) is ask
