"""Huawei Cloud SMS."""
