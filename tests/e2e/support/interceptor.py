"""Somebody between a client and a box."""

import socket
import ssl
import threading

from edge_rag.access.certificates import CertificateFolder

_TIMEOUT_S = 10.0


class Interceptor:
    """Somebody between a client and a box, with a certificate of their own for the same names."""

    def __init__(self, certificates: CertificateFolder, passed_on: int, box: str, host: str = "127.0.0.1") -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server.certificate, certificates.server.key)
        self._context.set_alpn_protocols(["h2"])
        self._passed_on = passed_on
        self._box = box
        self._listener = socket.create_server((host, 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.heard = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            plain.settimeout(_TIMEOUT_S)
            with plain:
                if self.connections <= self._passed_on:
                    self._pass_on(plain)
                    continue
                try:
                    with self._context.wrap_socket(plain, server_side=True) as stream:
                        while heard := stream.recv(4096):
                            self.heard += heard
                except (ssl.SSLError, OSError):
                    continue

    def _pass_on(self, client: socket.socket) -> None:
        host, _, port = self._box.rpartition(":")
        with socket.create_connection((host, int(port))) as box:
            back = threading.Thread(target=_copy, args=(box, client))
            back.start()
            _copy(client, box)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
