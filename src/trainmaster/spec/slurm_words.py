"""What the options of `sbatch` and the words of its scripts mean here: tables only (`spec.slurm_script` reads scripts)."""

SHORT = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir", "d": "dependency",
    "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses",
    "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit", "p": "partition",
    "q": "qos", "Q": "quiet", "S": "core-spec", "s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip
FLAGS = frozenset(  # options that take no value, or one only after `=`
    (
        "contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "kill-on-invalid-dep", "no-kill", "no-requeue",
        "overcommit", "oversubscribe", "parsable", "quiet", "reboot", "requeue", "spread-job", "test-only", "use-min-nodes",
        "verbose", "wait", "wait-all-nodes",
    )
)  # fmt: skip
MAPPED = frozenset(
    (
        "account", "array", "begin", "chdir", "comment", "cpus-per-task", "dependency", "export", "gpus", "gpus-per-node",
        "gpus-per-task", "gres", "hold", "job-name", "licenses", "mail-type", "mail-user", "mem", "mem-per-cpu",
        "mem-per-gpu", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "partition", "qos", "time", "tmp",
    )
)  # fmt: skip

_NO_NODES = "a job cannot name its nodes; choose a pool (--pool), or a kind of GPU (--gpus KIND:N)"
REFUSED = {
    "constraint": "nodes have no features; choose a pool (--pool), or a kind of GPU (--gpus KIND:N)",
    "nodelist": _NO_NODES,
    "nodefile": _NO_NODES,
    "exclude": _NO_NODES,
    "exclusive": "a node cannot be asked for as a whole; ask for all of its CPUs or GPUs",
    "reservation": "a job cannot use a reservation by name",
    "clusters": "a server is one cluster; name another one with --server",
    "input": "a job has no input; redirect a file in the script",
    "nice": "use --priority, from -100 to 100",
    "priority": "use --priority, from -100 to 100",
    "hetjob": "a job has one kind of node; programs beside the ranks are roles in a spec file",
    "packjob": "a job has one kind of node; programs beside the ranks are roles in a spec file",
}
_KEPT = "the output is kept and shown by tm logs"
_NO_BINDING = "processes are not bound to cores"
NOTED = {
    "output": _KEPT, "error": _KEPT, "open-mode": _KEPT,
    "signal": "the ranks get SIGTERM at their end, and SIGKILL 30 s later; no other signal, and none ahead of time",
    "requeue": "a job restarts after failures in any case (--restarts)",
    "wait": "tm run follows a job to its end",
    "parsable": "tm submit prints nothing but the id on standard output",
    "quiet": "use -q", "verbose": "it has no effect",
    **dict.fromkeys(
        ("cores-per-socket", "cpu-bind", "cpu-freq", "distribution", "gpu-bind", "hint", "mem-bind", "ntasks-per-core",
         "ntasks-per-socket", "overcommit", "oversubscribe", "sockets-per-node", "threads-per-core"), _NO_BINDING,
    ),
    **dict.fromkeys(
        ("acctg-freq", "contiguous", "core-spec", "get-user-env", "ignore-pbs", "kill-on-invalid-dep", "no-kill", "profile",
         "propagate", "spread-job", "switches", "use-min-nodes", "wait-all-nodes"), "it has no effect",
    ),
}  # fmt: skip

LAUNCHERS = ("torchrun", "torch.distributed.run", "accelerate launch", "mpirun", "mpiexec", "deepspeed", "horovodrun")
VARIABLES = {  # in a script: what is set instead
    "SLURM_JOB_ID": "TRAINMASTER_JOB", "SLURM_JOBID": "TRAINMASTER_JOB", "SLURM_PROCID": "RANK", "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NTASKS": "WORLD_SIZE", "SLURM_NPROCS": "WORLD_SIZE", "SLURM_NTASKS_PER_NODE": "LOCAL_WORLD_SIZE",
    "SLURM_NNODES": "TRAINMASTER_NODES", "SLURM_JOB_NUM_NODES": "TRAINMASTER_NODES", "SLURM_NODEID": "TRAINMASTER_NODE_RANK",
    "SLURM_ARRAY_TASK_ID": "TRAINMASTER_ARRAY_INDEX",
    "SLURM_CPUS_PER_TASK": "OMP_NUM_THREADS", "SLURM_NODELIST": "MASTER_ADDR and MASTER_PORT",
    "SLURM_JOB_NODELIST": "MASTER_ADDR and MASTER_PORT", "SLURM_TMPDIR": "TMPDIR",
    "SLURM_SUBMIT_DIR": "the current directory, a copy of the submitted one",
    "SLURM_RESTART_COUNT": "TRAINMASTER_ATTEMPT, which counts from 1",
}  # fmt: skip
