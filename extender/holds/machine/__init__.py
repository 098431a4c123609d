"""The pure state machine of the holds: told what happened, it says what is to be done.

Rule 1: every rule about releasing or refusing a bind lives here.
Rule 2: no threads, no clock, no I/O, no chance. The book is told, reads the mirror, and answers
with instructions; `barrier` carries them out.

Theory. The held calls of one PodGroup object form an *assembly*. When seated and held members
together reach minMember, the PodGroup is read from the API server itself (VERIFYING); when the
answer comes, every held member is judged anew, and only then are all bindings sent. Until that
moment any doubt ends the wait and nothing has happened; after it, the gang can only go forward,
as long as anybody of it runs. Whatever comes back late carries the *epoch* it was asked in and is
ignored if that has passed.

The walk of a bind goes one way: `book`, the door, hands it to `calls`, which judges it by
`standing` and lets it into `gathering`; once `quorum` is reached and verified, its outcome goes
through `calls` to `forward`. All of them write into one `table`, in the words of `messages` and
`cause`, about the things of `assembly`, for as long as `limits` says.
"""
