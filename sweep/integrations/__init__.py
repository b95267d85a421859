"""Callbacks and helpers by which training frameworks report, stop, save and resume under sweep.

One module a framework, which imports it: nothing is imported before its module is. They lie
beside the reporter in every image, run at Python 3.8 or newer, and outside sweep they do nothing:
a script which uses one runs alone unchanged.
"""
