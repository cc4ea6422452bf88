"""Sends under way, from the call to their end.

waiting_line    calls of asyncio that wait for room, first come, first served
lane_route      topic and time to live of a lane, found once
pending_result  the future of one record or notification
pending_send    one send with its future, or on its way to the overflow
send_batch      all sends of one `send_many`: one object, ends by index
"""
