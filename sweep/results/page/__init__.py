"""``sweep report``: one page of a study, that needs nothing but a browser.

``source`` reads the study, ``accounts`` and ``views`` compute every number, ``charts*`` turn views
into Vega-Lite, ``page`` writes the file, ``pictures`` draws the same charts as PNG or SVG.
"""
