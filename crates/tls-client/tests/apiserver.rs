//! The connection against a stub of the API server: credentials, count of the requests, and
//! settings that cannot be used.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kubelet_stub::apiserver::ApiServerStub;
use tls_client::SettingError;
use tls_client::apiserver::{ApiServerConfig, ApiServerConnection, ConfigError};

async fn start(directory: &Path) -> (ApiServerStub, ApiServerConfig) {
    let server = ApiServerStub::start(directory).await.expect("the stub starts");
    let config = ApiServerConfig {
        url: Some(server.url()),
        ca_file: Some(server.ca_file()),
        token_file: Some(server.token_file()),
        ..ApiServerConfig::default()
    };
    (server, config)
}

async fn list(client: &kube::Client) -> kube::Result<String> {
    let request = http::Request::get("/api/v1/pods").body(Vec::new()).expect("a literal path");
    client.request_text(request).await
}

/// The token ends with a newline, as after `kubectl create secret --from-file`, which client-go
/// accepts.
#[tokio::test]
async fn requests_of_all_clients_are_counted_and_the_token_is_trimmed() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut config) = start(directory.path()).await;
    let with_newline = directory.path().join("with-newline");
    let token = fs::read_to_string(server.token_file()).unwrap();
    fs::write(&with_newline, format!("{token}\r\n")).unwrap();
    config.token_file = Some(with_newline.clone());
    let requests = Arc::new(AtomicU64::new(0));
    let connection = ApiServerConnection::new(&config, Arc::clone(&requests)).unwrap();
    let (first, second) = (connection.client().unwrap(), connection.client_with(1).unwrap());
    list(&first).await.unwrap();
    // The last token stays in use while the file is missing.
    fs::remove_file(with_newline).unwrap();
    list(&first).await.unwrap();
    list(&second).await.unwrap();
    assert_eq!((requests.load(Ordering::Relaxed), server.requests().len()), (3, 3));
}

#[tokio::test]
async fn an_unusable_setting_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, config) = start(directory.path()).await;
    ApiServerConnection::validate(&config).unwrap();
    let error = |change: &dyn Fn(&mut ApiServerConfig)| {
        let mut config = config.clone();
        change(&mut config);
        match ApiServerConnection::validate(&config).unwrap_err() {
            ConfigError::Setting(error) => error,
            error @ ConfigError::Missing { .. } => panic!("{error}"),
        }
    };
    let url = error(&|config| config.url = Some("http://x".into()));
    assert!(matches!(url, SettingError::Url { setting: "--apiserver-url", .. }), "{url}");
    let ca = error(&|config| config.ca_file = Some("/nonexistent".into()));
    assert!(matches!(ca, SettingError::File { setting: "--apiserver-ca-file", .. }), "{ca}");
    let token = error(&|config| config.token_file = Some("/nonexistent".into()));
    assert!(
        matches!(token, SettingError::File { setting: "--apiserver-token-file", .. }),
        "{token}"
    );
}
