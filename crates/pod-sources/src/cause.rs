//! Failure causes of a pod source, each with its remedy. They contain no addresses and no part of
//! an answer, so they may be shown to everybody.

/// Reason why a source does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The kubelet's certificate is not trusted.
    Certificate,
    /// HTTP status 401.
    Unauthorized,
    /// HTTP status 403.
    Forbidden,
    /// No connection, or no answer.
    Unreachable,
    /// The API server does not answer, or its answer is not a pod list.
    ApiServer,
    /// Anything else; see the log.
    Other,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 6] = [
        Self::Certificate,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Unreachable,
        Self::ApiServer,
        Self::Other,
    ];

    /// Cause and remedy, as values of the chart; as flags only if there is no such value.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Certificate => {
                "the agent does not trust the kubelet's certificate: set kubelet.hostCertificate to the kubelet's \
                 serving certificate (restart the agent's pod if the file is new), or set config.podSource=apiserver"
            }
            Self::Unauthorized => {
                "the kubelet rejects the token: enable its webhook authentication (authentication.webhook.enabled), \
                 or set config.podSource=apiserver"
            }
            Self::Forbidden => {
                "the kubelet forbids the pod list: set rbac.create=true; kubelets before 1.33 need \
                 config.podSource=apiserver, kubelet.readOnlyPort=10255 or rbac.nodesProxy=true"
            }
            Self::Unreachable => {
                "no pod source answers: allow the agent's connection to the kubelet (kubelet.url, --kubelet-url), or \
                 set config.podSource=apiserver"
            }
            Self::ApiServer => {
                "the API server does not return the pod list: allow the agent's connection to it, and set \
                 rbac.create=true for the permission"
            }
            Self::Other => {
                "the pod list is invalid: check in the agent's log what answers at the kubelet's port (kubelet.url, \
                 --kubelet-url), or set config.podSource=apiserver"
            }
        }
    }

    /// The remedy without the cause.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        self.reason().split_once(": ").map_or("", |(_, remedy)| remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_remedy_in_the_values_of_the_chart() {
        let values = ["kubelet.", "config.podSource=apiserver", "rbac.create=true"];
        for cause in Cause::ALL {
            assert!(
                values.iter().any(|value| cause.remedy().contains(value)),
                "{cause:?}: {}",
                cause.remedy()
            );
        }
    }
}
