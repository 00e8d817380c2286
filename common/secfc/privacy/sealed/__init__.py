"""Sealed rounds (docs/sealed.md): a server that follows the protocol learns assignments and the final inertia, no distances.

The server and one committee member together know what the server knows in masked mode; any t clients, members included, learn
assignments and the inertia. The server's sum of uploads arrives under one more mask, which the committee's t+1 members know;
the server, as dealer and referee, and the members compare by a linear digit test.

`terms` says which plans can be sealed, `epochs` how a committee gets its keys, `questions` what can be asked; `server` and
`member` are the two halves of a request: they take messages and return messages, and do no input or output of their own.
"""
