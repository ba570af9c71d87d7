"""The processes of a server, and the pieces that they share: one that does everything is put together of the same ones."""
