"""View of a topology and of a running application's measurements, for terminals, pictures and JSON
(`odradek streams describe`).

`model` and `measurements` are data; `tree` and `annotations` draw them.
"""
