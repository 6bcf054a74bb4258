"""What claims mean: the networks and questions that are derived from the network of a claim.

A claim about faults, about two networks or about two copies of one is proved by ordinary proofs
about derived networks.  The rules here derive them.  They are part of the definition of the claims:
the questions ask what these rules say, and the checker derives the same again from the claim alone.
So both sides share this folder and nothing else, and an error here would be searched for *and*
accepted: each rule is guarded by brute force that does not use it (`tests/kernel/rules`).
"""
