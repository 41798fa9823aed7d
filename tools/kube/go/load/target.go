package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// target is the server under load and the way to it.
type target struct {
	base    string
	token   string
	client  *http.Client
	timeout time.Duration
}

func newTarget(o options) (*target, error) {
	if err := onlyLoopback(o.server); err != nil {
		return nil, err
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(o.server, "/")
	return &target{base, token, &http.Client{Transport: transport}, o.timeout}, nil
}

func onlyLoopback(server string) error {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "https" {
		return fmt.Errorf("-server %q is no https address", server)
	}
	if address := net.ParseIP(parsed.Hostname()); address == nil || !address.IsLoopback() {
		return fmt.Errorf("-server %q is not on loopback, and this program loads nothing else", server)
	}
	return nil
}

// readToken takes the token from a file or the environment: arguments are visible to everybody on the machine.
func readToken(file string) (string, error) {
	if file == "" {
		return os.Getenv("LOAD_TOKEN"), nil
	}
	content, err := os.ReadFile(file)
	return strings.TrimSpace(string(content)), err
}

func newTransport(o options) (*http.Transport, error) {
	secure, err := newTLS(o)
	if err != nil {
		return nil, err
	}
	var protocols http.Protocols
	switch o.protocol {
	case "http1":
		protocols.SetHTTP1(true)
	case "http2":
		protocols.SetHTTP2(true)
	default:
		return nil, fmt.Errorf("-protocol %q is neither http1 nor http2", o.protocol)
	}
	return &http.Transport{
		TLSClientConfig:     secure,
		Protocols:           &protocols,
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: mostClients,
		MaxConnsPerHost:     connections(o),
		// Compression on loopback would only measure the compressor.
		DisableCompression: true,
	}, nil
}

// connections bounds HTTP/1.1 to one connection per client: a burst of dials at the start would measure handshakes.
func connections(o options) int {
	if o.protocol == "http2" {
		return 0
	}
	return o.clients + o.writers
}

func newTLS(o options) (*tls.Config, error) {
	authority, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", o.ca)
	}
	config := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (t *target) request(ctx context.Context, method, path, contentType string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if t.token != "" {
		request.Header.Set("Authorization", "Bearer "+t.token)
	}
	return request, nil
}

// call does one request into a reused buffer, and fails unless the answer has one of the wanted codes.
func (t *target) call(method, path, contentType string, body []byte, into *bytes.Buffer, wanted ...int) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout)
	defer cancel()
	request, err := t.request(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	into.Reset()
	if _, err := io.Copy(into, answer.Body); err != nil {
		return err
	}
	for _, code := range wanted {
		if answer.StatusCode == code {
			return nil
		}
	}
	return refused(method, path, answer.StatusCode, into.Bytes())
}

func refused(method, path string, code int, body []byte) error {
	const shown = 300
	if len(body) > shown {
		body = body[:shown]
	}
	return errors.New(fmt.Sprint(method, " ", path, ": ", code, " ", string(body)))
}
