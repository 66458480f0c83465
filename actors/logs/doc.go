// Package logs is the actor that keeps the log files of containers small, and links them where log shippers look.
//
// A runtime writes to one file until it is told to open its path anew (ReopenContainerLog). So a log that has grown too
// big is renamed, the runtime told, and what was rotated away before is compressed, or removed where there is too much
// of it. Every step can be the last one before a crash: the next look goes on from what the disk shows. Nothing that a
// container wrote is lost by it but what there is no room for.
//
// A log's size is looked at each containerLogMonitorInterval, and soon after runtime says that containers changed. The
// newest rotated file stays uncompressed. A file that is not regular is neither followed nor rotated. Only links that lead
// to our logs are removed. As with the kubelet, the folder of links does not follow podLogsDir.
package logs
