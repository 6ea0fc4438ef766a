// Logins of sarama: one record for each, by TLS and SASL. SCRAM is brought by its user, as sarama's own examples do it.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"hash"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type login struct {
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Bearer    string `json:"token"`
}

// Token makes a login the provider of its own token.
func (l login) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: l.Bearer}, nil
}

type conversation struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (c *conversation) Begin(user, password, authorizationID string) error {
	made, err := c.hash.NewClient(user, password, authorizationID)
	if err == nil {
		c.ClientConversation = made.NewConversation()
	}
	return err
}

func scramWith(hash func() hash.Hash) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &conversation{hash: hash} }
}

func (l login) settings(authority string) *sarama.Config {
	pem, err := os.ReadFile(authority)
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	made := settings()
	made.Producer.Idempotent = false
	made.Producer.Retry.Max = 0
	made.Metadata.Retry.Max = 0
	made.Net.TLS.Enable = true
	made.Net.TLS.Config = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	made.Net.SASL.Enable = true
	made.Net.SASL.Mechanism = sarama.SASLMechanism(l.Mechanism)
	made.Net.SASL.User, made.Net.SASL.Password = l.User, l.Password
	switch l.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		made.Net.SASL.SCRAMClientGeneratorFunc = scramWith(sha256.New)
	case sarama.SASLTypeSCRAMSHA512:
		made.Net.SASL.SCRAMClientGeneratorFunc = scramWith(sha512.New)
	case sarama.SASLTypeOAuth:
		made.Net.SASL.TokenProvider = l
	}
	return made
}

func (l login) write(bootstrap []string, given arguments) error {
	producing, err := sarama.NewSyncProducer(bootstrap, l.settings(given.CA))
	if err != nil {
		return err
	}
	defer producing.Close()
	_, _, err = producing.SendMessage(messages(given.Topic, []string{l.User})[0])
	return err
}

// logins says of each what came of it: "written", or the client's own words.
func logins(_ context.Context, bootstrap []string, given arguments) any {
	outcomes := []string{}
	for _, login := range given.Logins {
		outcome := "written"
		if err := login.write(bootstrap, given); err != nil {
			outcome = err.Error()
		}
		outcomes = append(outcomes, outcome)
	}
	return map[string]any{"outcomes": outcomes}
}
