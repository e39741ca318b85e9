"""One example for each command, at the end of its help. A test parses each of them."""

import click

EXAMPLES = {
    "init": "tm init digits",
    "run": "tm run --gpus 1 --time-limit 2h --checkpoint 'out/*.pt' -- python train.py",
    "submit": "tm submit train.yaml --set lr=3e-4 --tag owner=team-a",
    "plan": "tm plan --gpus 2 -- python train.py",
    "render": "tm render train.yaml",
    "wait": "tm wait train-1 train-2 --timeout 600",
    "ps": "tm ps --mine --tag owner=team-a --since 7d --sort -elapsed",
    "top": "tm top --every 5",
    "show": "tm show @last",
    "get-spec": "tm get-spec train-1 > again.yaml",
    "why": "tm why train-2",
    "queue": "tm queue --project vision",
    "logs": "tm logs -f -n 20 @last",
    "metrics": "tm metrics train-1 train-2 --metric loss",
    "metrics export": "tm metrics export train-1 --csv",
    "metrics try": "tm metrics try train.log",
    "artifacts": "tm artifacts train-1 --kind model",
    "get": "tm get train-1 'out/*.png' -o figures",
    "compare": "tm compare train-1 train-2 --metric loss",
    "note": "tm note train-1 'the learning rate was too high'",
    "exec": "tm exec train-1 -- nvidia-smi",
    "attach": "tm attach train-1",
    "cancel": "tm cancel train-1 --grace 2m",
    "update": "tm update train-2 --priority 10 --time-limit 12h",
    "rerun": "tm rerun train-1@450 --set lr=1e-4",
    "reproduce": "tm reproduce train-1 -f",
    "hold": "tm hold train-2 --reason 'after the deadline'",
    "release": "tm release train-2",
    "nodes": "tm nodes",
    "nodes list": "tm nodes list --json",
    "nodes drain": "tm nodes drain node0 --reason 'new driver'",
    "nodes resume": "tm nodes resume node0",
    "nodes lost": "tm nodes lost node0 --reason 'its power supply burned'",
    "gpus": "tm gpus --since 8h",
    "usage": "tm usage --by project,member --since 30d",
    "apply": "tm apply cluster.yaml",
    "policy": "tm policy --yaml > cluster.yaml",
    "simulate": "tm simulate trace --history --compare fifo,easy",
    "simulate trace": "tm simulate trace --history --add 'h100: 2x8'",
    "simulate openb": "tm simulate openb --nodes nodes.csv --pods pods.csv",
    "export": "tm export history.jsonl",
    "up": "tm up --port 7070",
    "down": "tm down",
    "token": "tm token create ada --role member",
    "token create": "tm token create ada --role member --expires 90d",
    "token list": "tm token list",
    "token revoke": "tm token revoke ada",
    "rm": "tm rm train-1 --only logs --dry-run",
    "prune": "tm prune --older-than 30d --keep 20 --dry-run",
    "storage": "tm storage --project vision",
    "storage gc": "tm storage gc --dry-run",
    "backup": "tm backup trainmaster-backup",
    "restore": "tm restore trainmaster-backup",
    "doctor": "tm doctor",
    "config": "tm config",
    "config list": "tm config list",
    "config get": "tm config get server",
    "config set": "tm config set project vision",
    "config explain": "tm config explain server",
    "config check": "tm config check",
    "completion": "tm completion bash",
    "schema": "tm schema cluster",
    "help": "tm help nodes drain",
    "version": "tm version",
}


def add_examples(name: str, command: click.Command) -> None:
    """Let the help of a command, and of the commands below it, end with an example."""
    if name in EXAMPLES and command.epilog is None:
        command.epilog = f"\b\nExample:\n  {EXAMPLES[name]}"
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            add_examples(f"{name} {below}", one)
