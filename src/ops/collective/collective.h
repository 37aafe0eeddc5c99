#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Exchanges between the workers of a run; a worker without a ProcessGroup is alone. Values are in host
/// memory, or with the attr kOnGpu of all_reduce, reduce and broadcast a GPU's, for groups with
/// Capability::device_memory.
/// attr "wire": the dtype that travels, f32 (as left out) or bf16.
extern const ir::OpDef all_reduce;  ///< (x...), 64 at most -> their sums over all workers, in place
/// attr "root": a worker's number.
extern const ir::OpDef reduce;     ///< (x...) -> their sums on worker `root`, in place; elsewhere anything
extern const ir::OpDef broadcast;  ///< (x...) -> those of worker `root`, in place
/// (x) -> u8[1] that nothing reads: x of this worker, `root`, goes to all others.
extern const ir::OpDef send_broadcast;
/// () -> x of attrs "shape" and "dtype" (f32, if left out) of worker `root`; zeros for a worker that is
/// alone.
extern const ir::OpDef receive_broadcast;
extern const ir::OpDef send;  ///< (x) -> u8[1] that nothing reads; attr "to": the worker that receives x
/// () -> what worker "from" sends, of "dtype" and "shape"; zeros for a worker that is alone.
extern const ir::OpDef receive;

inline constexpr const char* kOnGpu = "on_gpu";

/// Most inputs of all_reduce.
inline constexpr int kMostPieces = 64;

}  // namespace hearth::ops
