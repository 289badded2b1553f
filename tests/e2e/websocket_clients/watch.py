"""Watches a resource over WebSocket, and prints the result as one line of JSON.

Arguments: the URL of `kubectl proxy` without its scheme, and the path of the watch with its query. The
script needs the package websocket-client.
"""

import json
import sys

import websocket

host, path = sys.argv[1:]
socket = websocket.create_connection(
    f"ws://{host}{path}", timeout=60, subprotocols=["base64.binary.k8s.io"]
)
events = []
end = None
while end is None:
    opcode, data = socket.recv_data(control_frame=True)
    if opcode == websocket.ABNF.OPCODE_TEXT:
        events.append(data.decode())
    elif opcode == websocket.ABNF.OPCODE_CLOSE:
        end = int.from_bytes(data[:2], "big")
result = {"events": events, "end": end, "subprotocol": socket.subprotocol}
print(json.dumps(result))
