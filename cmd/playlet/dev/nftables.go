package dev

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// deleteTable removes an empty table of nftables that iptables has made, with those of its base chains that are there.
// It is one transaction: when a chain has got a rule meanwhile, nothing is done, and that is no error.
func deleteTable(family uint8, name string, chains []string) error {
	answers, err := request(unix.NETLINK_NETFILTER, tableBatch(family, name, chains), len(chains)+1)
	if err != nil {
		return err
	}
	var there []string
	for i, chain := range chains {
		if !errors.Is(answers[i], unix.ENOENT) { // iptables makes chains one by one, as they get rules
			there = append(there, chain)
		}
	}
	if len(there) < len(chains) {
		answers, err = request(unix.NETLINK_NETFILTER, tableBatch(family, name, there), len(there)+1)
	}
	if err = errors.Join(append(answers, err)...); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the empty table %s: %w", name, err)
	}
	return nil
}

// tableBatch is the transaction: deletions of chains, and then of the table. With NONREC, what is not empty fails with
// EBUSY; without, its contents would go too.
func tableBatch(family uint8, table string, chains []string) []byte {
	head := func(family uint8, resource uint16) []byte { // nfgenmsg
		return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
	}
	order := func(what uint16, attributes ...[]byte) []byte {
		body := head(family, 0)
		for _, a := range attributes {
			body = append(body, a...)
		}
		return message(unix.NFNL_SUBSYS_NFTABLES<<8|what, unix.NLM_F_ACK|unix.NLM_F_NONREC, body)
	}
	batch := message(unix.NFNL_MSG_BATCH_BEGIN, 0, head(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	for _, chain := range chains {
		batch = append(batch, order(unix.NFT_MSG_DELCHAIN,
			attribute(unix.NFTA_CHAIN_TABLE, table), attribute(unix.NFTA_CHAIN_NAME, chain))...)
	}
	batch = append(batch, order(unix.NFT_MSG_DELTABLE, attribute(unix.NFTA_TABLE_NAME, table))...)
	return append(batch, message(unix.NFNL_MSG_BATCH_END, 0, head(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))...)
}
