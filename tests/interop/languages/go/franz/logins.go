// Logins of franz-go: one record for each, by TLS and SASL.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type login struct {
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Token     string `json:"token"`
}

func (l login) mechanism() sasl.Mechanism {
	return map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: l.User, Pass: l.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: l.Token}.AsMechanism(),
	}[l.Mechanism]
}

func trusting(file string) *tls.Config {
	authority, err := os.ReadFile(file)
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// logins says of each what came of it: "written", or the client's own words.
func logins(ctx context.Context, bootstrap string, given arguments) any {
	outcomes := []string{}
	for _, login := range given.Logins {
		producing := client(bootstrap, kgo.DialTLSConfig(trusting(given.CA)), kgo.SASL(login.mechanism()),
			kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.RequestRetries(0))
		outcome := "written"
		if err := producing.ProduceSync(ctx, records(given.Topic, []string{login.User})...).FirstErr(); err != nil {
			outcome = err.Error()
		}
		producing.Close()
		outcomes = append(outcomes, outcome)
	}
	return map[string]any{"outcomes": outcomes}
}
