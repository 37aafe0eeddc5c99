#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Collectives between the workers (ranks) of a run. Without a ProcessGroup (a single worker) nothing is
/// exchanged. Arrays are in host memory. If the process group has Capability::device_memory, those of
/// all_reduce, reduce and broadcast may be in GPU memory (attribute kOnGpu). The attribute "wire" of
/// all_reduce is the dtype that is transferred, f32 (default) or bf16.
extern const ir::OpDef all_reduce;  ///< (x...), f32, at most kMaxPieces -> sums over all workers, in place
/// Attribute "root" of reduce and broadcast: the rank that receives the sums or sends the values.
extern const ir::OpDef reduce;     ///< (x...) -> sums on rank `root`, in place; undefined on other ranks
extern const ir::OpDef broadcast;  ///< (x...) -> the values of rank `root`, in place
/// (x) -> u8[1], a placeholder. Runs on rank `root` only: sends x to all other ranks.
extern const ir::OpDef send_broadcast;
/// () -> the x that rank `root` sends by send_broadcast; its shape and dtype are the attributes "shape" and
/// "dtype" (default f32). Zeros if there is a single worker.
extern const ir::OpDef receive_broadcast;
extern const ir::OpDef send;  ///< (x) -> u8[1], a placeholder; attribute "to": the receiving rank
/// () -> the x that the rank in the attribute "from" sends; its dtype and shape are the attributes "dtype"
/// and "shape". Zeros if there is a single worker.
extern const ir::OpDef receive;

/// Name of the attribute that is 1 if all inputs are in GPU memory.
inline constexpr const char* kOnGpu = "on_gpu";

/// Maximum number of inputs of all_reduce, reduce and broadcast.
inline constexpr int kMaxPieces = 64;

}  // namespace hearth::ops
