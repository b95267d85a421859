"""``sweep report``: one page of a study, that needs nothing but a browser.

``source`` reads the study, ``current`` what it does now, ``accounts`` and ``views`` compute every
number, ``charts*`` turn views into Vega-Lite, ``dataset`` holds all trials for what the page's own
scripts (``assets``) draw, ``html`` and ``write`` make the file, ``pictures`` PNG or SVG of the same
charts. ``live_page`` serves it.
"""
