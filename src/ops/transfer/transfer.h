#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Copies of values between device and host memory, for offloading. On the CPU and on devices that share the
/// host's memory, they are copies within that memory.
extern const ir::OpDef fetch;  ///< (x in host memory) -> a copy of x on the device
extern const ir::OpDef
    store;  ///< (x on the device, weight or state in host memory): overwrites the latter with x
extern const ir::OpDef stash;  ///< (x on the device) -> a copy of x in host memory
extern const ir::OpDef
    load;  ///< (weight or state on the device, x in host memory): overwrites the former with x

/// Lossy copies on the device, of 1 byte per element, that replace saved activations between the forward and
/// the backward pass. Each row of the last axis has a power-of-two scale (base/e4m3.h); a row with an
/// infinite or NaN element is decoded to NaN.
extern const ir::OpDef encode_fp8;  ///< x -> u8[rows * columns codes, then rows exponent bytes]
extern const ir::OpDef decode_fp8;  ///< codes -> a value of attributes `shape` and `dtype`

}  // namespace hearth::ops
