"""A stand-in of the placement service that answers as a test has it. What it really answers is tried by
the functional tests, with the real one."""

import contextlib
import http.server
import json
import threading


@contextlib.contextmanager
def service(answer):
    """Serves `answer(method, path, body, headers)`, which returns (status, body). Yields the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _all(self):
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, text = answer(self.command, self.path, body, self.headers)
            data = text if isinstance(text, bytes) else json.dumps(text).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_PUT = _all

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
