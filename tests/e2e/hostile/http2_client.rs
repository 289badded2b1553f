//! A minimal HTTP/2 client for the tests with hostile clients. It writes frames without an HTTP
//! library, because HTTP libraries do not send hostile sequences of frames. It counts the answers,
//! and drops their content.

use crate::harness::{DEADLINE, ServerProcess, TestCluster, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest size of a frame in bytes. It is the default of HTTP/2 (RFC 9113, 4.2).
const MAX_FRAME: usize = 16 << 10;

// The types of frames, and their flags (RFC 9113, 6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Identifier of the setting for the flow-control window of each stream (RFC 9113, 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Error code of a RST_STREAM frame with which a client cancels a request (RFC 9113, 7).
const CANCEL: u32 = 8;
/// Counts of the frames that a connection has received so far.
#[derive(Clone, Debug, Default)]
pub struct FrameCounts {
    /// Number of answers whose headers have arrived.
    pub heads: usize,
    /// Number of answers to PING frames.
    pub pongs: usize,
    /// The error code of the GOAWAY frame, if the server has sent one.
    pub goaway: Option<u32>,
    pub closed: bool,
}

/// Opens connections to one server. The connections can present a client certificate.
pub struct RawConnector {
    tls: TlsConnector,
    name: ServerName<'static>,
    port: u16,
}

impl RawConnector {
    /// Creates a connector. If `front_proxy` is true, the connector presents the client certificate
    /// of the kube-apiserver. Otherwise the connector presents no certificate.
    pub async fn to(cluster: &TestCluster, server: &ServerProcess, front_proxy: bool) -> Self {
        let addresses = &cluster.control_plane.addresses;
        let read = |path: &str| std::fs::read(path).expect("the control plane writes this file");
        let identity = front_proxy.then(|| {
            let certificate = read(&addresses.request_header_client_certificate);
            (certificate, read(&addresses.request_header_client_key))
        });
        Self::with(
            cluster,
            server,
            identity.as_ref().map(|(c, k)| (&**c, &**k)),
        )
        .await
    }

    async fn with(
        cluster: &TestCluster,
        server: &ServerProcess,
        identity: Option<(&[u8], &[u8])>,
    ) -> Self {
        let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
        let registration = cluster.admin.get(path).await.ok();
        let bundle = STANDARD.decode(text(&registration, "/spec/caBundle"));
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&bundle.expect("caBundle is base64")) {
            let root = root.expect("caBundle contains PEM");
            roots.add(root).expect("caBundle contains a CA");
        }
        let tls = ClientConfig::builder().with_root_certificates(roots);
        let mut tls = if let Some((certificate, key)) = identity {
            let certificate =
                CertificateDer::from_pem_slice(certificate).expect("the certificate is PEM");
            let key = PrivateKeyDer::from_pem_slice(key);
            tls.with_client_auth_cert(vec![certificate], key.expect("the key is PEM"))
                .expect("the key belongs to the certificate")
        } else {
            tls.with_no_client_auth()
        };
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let service = &registration["spec"]["service"];
        let name = format!(
            "{}.{}.svc",
            text(service, "/name"),
            text(service, "/namespace")
        );
        Self {
            tls: TlsConnector::from(Arc::new(tls)),
            name: name.try_into().expect("the Service has a DNS name"),
            port: server.port(),
        }
    }

    /// Opens a connection. `window` is the flow-control window of each stream: the number of bytes
    /// of a body that the server may send. This client never increases the window, so the server
    /// can send no more bytes.
    pub async fn connect(&self, window: u32) -> RawConnection {
        let connection = self.connect_from([127, 0, 0, 1], window).await;
        connection.expect("the server must accept the connection")
    }

    /// Opens a connection as [`Self::connect`] does, but from this address. Returns an error if the
    /// server does not accept the connection.
    pub async fn connect_from(&self, address: [u8; 4], window: u32) -> io::Result<RawConnection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        let stream = socket.connect(([127, 0, 0, 1], self.port).into()).await?;
        let mut stream = self.tls.connect(self.name.clone(), stream).await?;
        let mut preface = PREFACE.to_vec();
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend(window.to_be_bytes());
        frame(&mut preface, SETTINGS, 0, 0, &settings);
        // A connection must begin with the preface. The task below writes frames, too, so this
        // method sends the preface before the task starts.
        stream.write_all(&preface).await?;
        let (reader, writer) = tokio::io::split(stream);
        let writer = Arc::new(Mutex::new(writer));
        let (seen, sees) = watch::channel(FrameCounts::default());
        let writer_clone = Arc::clone(&writer);
        let reading = tokio::spawn(async move {
            // An error means that the connection was closed.
            let _ = read(reader, &writer_clone, &seen).await;
            seen.send_modify(|seen| seen.closed = true);
        });
        Ok(RawConnection {
            writer,
            seen: sees,
            reading,
            next: 1,
            buffer: Vec::new(),
        })
    }
}

/// One connection. Dropping this value closes the connection.
pub struct RawConnection {
    writer: Arc<Mutex<WriteHalf<TlsStream<TcpStream>>>>,
    seen: watch::Receiver<FrameCounts>,
    reading: JoinHandle<()>,
    /// The number of the next stream. A client uses odd numbers.
    next: u32,
    /// Bytes that have not been sent yet.
    buffer: Vec<u8>,
}

impl RawConnection {
    /// Adds a GET request to the bytes to send. Returns the number of the request's stream.
    pub fn add_get(&mut self, path: &str, headers: &[(&str, &str)]) -> u32 {
        // The headers `:method: GET` and `:scheme: https`, as indexes of the static table (RFC
        // 7541, appendix A).
        let mut fields = vec![0x82, 0x87];
        // `:authority` has the index 1 in the static table, and `:path` has the index 4. Below, the
        // index 0 means that the name follows as a string.
        for (name, value) in [(1, "localhost"), (4, path)] {
            fields.push(name);
            literal(&mut fields, value);
        }
        for (name, value) in headers {
            fields.push(0);
            literal(&mut fields, name);
            literal(&mut fields, value);
        }
        let stream = self.next;
        self.next += 2;
        let parts = fields.chunks(MAX_FRAME).count();
        for (number, part) in fields.chunks(MAX_FRAME).enumerate() {
            let (kind, first) = match number {
                0 => (HEADERS, END_STREAM),
                _ => (CONTINUATION, 0),
            };
            let last = if number + 1 == parts { END_HEADERS } else { 0 };
            frame(&mut self.buffer, kind, first | last, stream, part);
        }
        stream
    }

    /// Adds a RST_STREAM frame to the bytes to send. The frame cancels the request of this stream.
    pub fn add_reset(&mut self, stream: u32) {
        frame(
            &mut self.buffer,
            RST_STREAM,
            0,
            stream,
            &CANCEL.to_be_bytes(),
        );
    }

    /// Sends all bytes that have been added.
    pub async fn send(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut writer = self.writer.lock().await;
        writer.write_all(&buffer).await?;
        writer.flush().await
    }

    /// Returns the counts of the frames that have been received so far.
    pub fn seen(&self) -> FrameCounts {
        self.seen.borrow().clone()
    }

    /// Waits until `enough` returns true for the received frames. If `enough` returns false until
    /// [`DEADLINE`], the test fails. The error message contains `what`, the expectation.
    pub async fn until(&mut self, what: &str, enough: impl Fn(&FrameCounts) -> bool) {
        let there = tokio::time::timeout(DEADLINE, self.seen.wait_for(|seen| enough(seen)));
        let there = there.await.map(|there| there.is_ok());
        assert_eq!(there, Ok(true), "{what}; instead: {:?}", self.seen());
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Reads frames until the connection is closed, and updates the counts in `seen`. Acknowledges the
/// server's SETTINGS frames, and answers its PING frames. Returns the error that ended the
/// connection.
async fn read(
    mut reader: ReadHalf<TlsStream<TcpStream>>,
    writer: &Mutex<WriteHalf<TlsStream<TcpStream>>>,
    seen: &watch::Sender<FrameCounts>,
) -> io::Result<()> {
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await?;
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; size as usize];
        reader.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        let mut answer = Vec::new();
        match kind {
            HEADERS => seen.send_modify(|seen| seen.heads += 1),
            GOAWAY => {
                let code = payload[4..8].try_into().expect("the slice has four bytes");
                seen.send_modify(|seen| seen.goaway = Some(u32::from_be_bytes(code)));
            }
            SETTINGS if flags & ACK == 0 => frame(&mut answer, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK != 0 => seen.send_modify(|seen| seen.pongs += 1),
            PING => frame(&mut answer, PING, ACK, 0, &payload),
            _ => {}
        }
        if !answer.is_empty() {
            let mut writer = writer.lock().await;
            writer.write_all(&answer).await?;
            writer.flush().await?;
        }
    }
}

fn frame(buffer: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let size = u32::try_from(payload.len()).expect("the payload is below 4 GiB");
    buffer.extend(&size.to_be_bytes()[1..]);
    buffer.extend([kind, flags]);
    buffer.extend(stream.to_be_bytes());
    buffer.extend(payload);
}

/// Encodes a string without Huffman codes, as in section 5 of RFC 7541. The length of the string
/// comes first: one byte if the length is below 127, otherwise several bytes. Then come the bytes
/// of the string.
fn literal(fields: &mut Vec<u8>, text: &str) {
    let mut rest = text.len();
    if rest < 127 {
        fields.push(u8::try_from(rest).expect("less than 127"));
    } else {
        fields.push(127);
        rest -= 127;
        while rest >= 128 {
            fields.push(u8::try_from(rest % 128 + 128).expect("less than 256"));
            rest /= 128;
        }
        fields.push(u8::try_from(rest).expect("less than 128"));
    }
    fields.extend(text.as_bytes());
}
