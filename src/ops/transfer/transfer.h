#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Copies between device and host memory, for offloading; they never change values. On devices that share the
/// host's memory they are plain copies.
extern const ir::OpDef fetch;  ///< (on host) -> a copy on the device
extern const ir::OpDef store;  ///< (x, weight or state on host): overwrites it with x
extern const ir::OpDef stash;  ///< (x) -> a copy on the host
extern const ir::OpDef load;   ///< (weight or state, x on host): overwrites it with x

}  // namespace hearth::ops
