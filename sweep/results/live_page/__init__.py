"""``sweep serve``: the page of ``sweep report``, renewed while somebody looks.

``gate`` says who is let in, ``web_server`` answers browsers, ``feeds`` reads the database for all
of them in one thread, ``news`` is what has changed on a page, ``trial_log`` a trial's output.
"""
