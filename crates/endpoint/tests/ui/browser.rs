//! Headless Chromium, driven by WebDriver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for a condition, and for a browser beside other load: minutes on a busy machine.
const LONGEST: Duration = Duration::from_secs(180);

/// Runs `chromedriver` until the standard input ends, which it does with this process at the latest.
/// Then it ends the browser, which outlives its driver, and removes their files.
const UNTIL_END_OF_INPUT: &str = r#"chromedriver "$@" & driver=$!
cat > /dev/null
kill "$driver"; pkill --full -- "--user-data-dir=$TMPDIR"
until rm -rf "$TMPDIR"; do sleep 0.1; done"#;

/// Browsers that tests have returned. A browser takes a second of a CPU to start.
static IDLE: Mutex<Vec<Browser>> = Mutex::new(Vec::new());

/// A browser with one blank tab. The next test takes it over, unless this one fails.
pub(crate) struct Borrowed(Option<Browser>);

impl Deref for Borrowed {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let browser = self.0.take().unwrap();
        browser.reset();
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(browser);
    }
}

/// A browser with one tab, closed on drop.
pub(crate) struct Browser {
    driver: Child,
    /// Temporary files of driver and browser, which leave some behind.
    files: PathBuf,
    port: u16,
    session: String,
}

impl Browser {
    /// A browser that another test has returned, or else a new one.
    pub(crate) fn borrow() -> Borrowed {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Borrowed(Some(idle.unwrap_or_else(|| {
            let mut driver = Command::new("sh");
            driver.args(["-c", UNTIL_END_OF_INPUT, "sh"]).stdin(Stdio::piped());
            Self::start(driver)
        })))
    }

    /// Starts a browser with a command that runs `chromedriver` and passes on arguments.
    pub(crate) fn start(mut driver: Command) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cpuwarden-browser-{}-{number}", std::process::id());
        let files = std::env::temp_dir().join(name);
        std::fs::create_dir(&files).unwrap();
        let mut driver = driver
            .env("TMPDIR", &files)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver (Debian package chromium-driver)");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let mut browser = Self {
            driver,
            files,
            port: port.expect("port of chromedriver"),
            session: String::new(),
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let began = Instant::now();
        while browser.session.is_empty() {
            // The driver gives the browser a minute to start, which may be too short.
            match browser.try_send("POST", "/session", &capabilities) {
                Ok(session) => {
                    session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
                }
                Err(error) => assert!(began.elapsed() < LONGEST, "no browser: {error}"),
            }
        }
        browser
    }

    /// Opens an address.
    pub(crate) fn open(&self, url: &str) {
        self.call("url", &json!({ "url": url }));
    }

    /// The value of a script's `return`.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&self, expression: &str) {
        let began = Instant::now();
        while self.run(&format!("return Boolean({expression})")) != true {
            assert!(
                began.elapsed() < LONGEST,
                "never: {expression}\n{}\n{:?}",
                self.run("return document.body.innerText"),
                self.console()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key.
    pub(crate) fn press(&self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key.len() == 1 && kind == "keyDown" { key } else { "" };
            self.devtools(
                "Input.dispatchKeyEvent",
                &json!({"type": kind, "key": key, "text": text}),
            );
        }
    }

    /// Moves the pointer to this share of the width of an element, and with `buttons` presses or
    /// releases it there: `mouseMoved`, `mousePressed` or `mouseReleased`.
    pub(crate) fn mouse(&self, kind: &str, selector: &str, share: f64) {
        let script = format!(
            "const box = document.querySelector('{selector}').getBoundingClientRect();
             return [box.left + {share} * box.width, box.top + 20]"
        );
        let at = self.run(&script);
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        self.devtools(
            "Input.dispatchMouseEvent",
            &json!({"type": kind, "x": at[0], "y": at[1], "button": button, "clickCount": 1}),
        );
    }

    /// Sets size and color scheme.
    pub(crate) fn look(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    /// Leaves the page, and takes back what was set and logged.
    fn reset(&self) {
        self.open("about:blank");
        self.devtools("Emulation.clearDeviceMetricsOverride", &json!({}));
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [] }));
        self.set_time_zone("");
        self.console();
        self.requests();
    }

    /// Sets the time zone, such as `Asia/Tokyo`.
    pub(crate) fn set_time_zone(&self, zone: &str) {
        self.devtools("Emulation.setTimezoneOverride", &json!({ "timezoneId": zone }));
    }

    /// Writes a picture of the tab.
    pub(crate) fn screenshot(&self, file: &Path) {
        let image =
            self.send("GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        let base64 = image.as_str().unwrap();
        std::fs::write(file, decode(base64)).unwrap();
    }

    /// Errors and warnings of the console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.call("se/log", &json!({"type": "browser"}));
        entries.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Addresses of all requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        let entries = self.call("se/log", &json!({"type": "performance"}));
        let message = |entry: &Value| -> Option<String> {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            is_request.then(|| Some(event["params"]["request"]["url"].as_str()?.to_owned()))?
        };
        entries.as_array().unwrap().iter().filter_map(message).collect()
    }

    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.call("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    fn call(&self, command: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}/{command}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_send(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The value of an answer, or the text of an error.
    fn try_send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let answer = read_answer(stream);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let value = answer["value"].clone();
        if value.get("error").is_some() { Err(format!("{value:#}")) } else { Ok(value) }
    }
}

/// The body of an answer with a length: the driver keeps some connections open.
fn read_answer(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

fn decode(base64: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in base64.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | u32::from(value(byte));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Closes the browser's processes; the driver alone would leave them.
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let _ = write!(
                    stream,
                    "DELETE /session/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                    self.session
                );
                let _ = stream.read(&mut [0; 256]);
            }
        }
        if self.driver.stdin.take().is_none() {
            let _ = self.driver.kill();
        }
        let _ = self.driver.wait();
        // Processes of the browser may still end.
        for _ in 0..50 {
            if std::fs::remove_dir_all(&self.files).is_ok() || !self.files.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
