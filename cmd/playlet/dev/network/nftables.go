package network

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// deleteTable removes an empty table of nftables that iptables has created, with its existing base chains. This is one
// transaction: if a chain has received a rule meanwhile, nothing is removed, which is no error.
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

// deleteChain removes a base chain that holds nothing; one that holds something by now, or is gone, is no error.
func deleteChain(family uint8, table, chain string) error {
	answers, err := request(unix.NETLINK_NETFILTER, batch(chainOrder(family, unix.NFT_MSG_DELCHAIN, table, chain)), 1)
	if err = errors.Join(append(answers, err)...); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the empty chain %s of the table %s: %w", chain, table, err)
	}
	return nil
}

// chainThere asks for a chain.
func chainThere(family uint8, table, chain string) (bool, error) {
	answers, err := request(unix.NETLINK_NETFILTER, chainOrder(family, unix.NFT_MSG_GETCHAIN, table, chain), 1)
	return err == nil && !errors.Is(answers[0], unix.ENOENT), err
}

// tableBatch is the transaction: deletions of chains, and then of the table.
func tableBatch(family uint8, table string, chains []string) []byte {
	var orders []byte
	for _, chain := range chains {
		orders = append(orders, chainOrder(family, unix.NFT_MSG_DELCHAIN, table, chain)...)
	}
	return batch(append(orders, order(family, unix.NFT_MSG_DELTABLE, attribute(unix.NFTA_TABLE_NAME, table))...))
}

func chainOrder(family uint8, what uint16, table, chain string) []byte {
	return order(family, what, append(attribute(unix.NFTA_CHAIN_TABLE, table), attribute(unix.NFTA_CHAIN_NAME, chain)...))
}

// order returns one message. With NONREC, the deletion of a non-empty object fails with EBUSY; without, its contents are deleted
// too.
func order(family uint8, what uint16, attributes []byte) []byte {
	flags := uint16(unix.NLM_F_ACK | unix.NLM_F_NONREC)
	if what == unix.NFT_MSG_GETCHAIN {
		flags = 0 // the answer is the acknowledgement
	}
	return message(unix.NFNL_SUBSYS_NFTABLES<<8|what, flags, append(head(family, 0), attributes...))
}

// batch makes a transaction of orders.
func batch(orders []byte) []byte {
	out := message(unix.NFNL_MSG_BATCH_BEGIN, 0, head(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	return append(append(out, orders...), message(unix.NFNL_MSG_BATCH_END, 0, head(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))...)
}

// head is an nfgenmsg.
func head(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}
