"""The console's web pages: server-rendered, over the data of `odradek.console` (Starlette, Jinja).

Pages are plain links and forms and work without JavaScript. Where there is one, htmx refreshes a part of a page or
searches while the user types: it asks for the same page and takes an element of it.
"""
