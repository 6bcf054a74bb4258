"""A record of the answers of the command line to random questions.

    python -m benchmarks.record make FILE [--number 2000] [--seed 0]
    python -m benchmarks.record compare FILE [--ignore FIELD] [--only TEXT]
    python -m benchmarks.record show FILE NUMBER FOLDER

`make` stores questions about small networks, of all commands, with their files and answers;
`compare` asks the same questions again and prints every difference.  Of bnncert only its command
line is used, so that a record stays valid when modules move.
"""
