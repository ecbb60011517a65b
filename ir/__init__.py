"""The two dialects (flow: `Graph`; plan: `Plan`), their text, binary form, verifier and errors.

Imports nothing of ours, and neither torch nor zmq.
"""
