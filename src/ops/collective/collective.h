#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Collectives between the workers (ranks) of a run; without a ProcessGroup a worker is alone. Buffers are in
/// host memory or, with the attribute kOnGpu of all_reduce, reduce and broadcast, in GPU memory, for groups
/// with Capability::device_memory.
/// Attribute "wire": the dtype that is transferred, f32 (default) or bf16.
extern const ir::OpDef all_reduce;  ///< (x...), at most kMaxPieces -> sums over all workers, in place
/// Attribute "root": a rank.
extern const ir::OpDef reduce;     ///< (x...) -> sums on rank `root`, in place; undefined elsewhere
extern const ir::OpDef broadcast;  ///< (x...) -> the values of rank `root`, in place
/// (x) -> u8[1], unused: sends x of this rank, `root`, to all others.
extern const ir::OpDef send_broadcast;
/// () -> x of rank `root`, with attributes "shape" and "dtype" (default f32); zeros for a single worker.
extern const ir::OpDef receive_broadcast;
extern const ir::OpDef send;  ///< (x) -> u8[1], unused; attribute "to": the receiving rank
/// () -> the value sent by rank "from", with attributes "dtype" and "shape"; zeros for a single worker.
extern const ir::OpDef receive;

/// Attribute: buffers are in GPU memory.
inline constexpr const char* kOnGpu = "on_gpu";

/// Maximum number of inputs of all_reduce.
inline constexpr int kMaxPieces = 64;

}  // namespace hearth::ops
