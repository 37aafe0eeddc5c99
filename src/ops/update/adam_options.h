#pragma once

#include "ir/attrs.h"

namespace hearth::ops {

/// Attributes of the AdamW ops (Adam with decoupled weight decay, arXiv 1711.05101).
struct AdamOptions {
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
};
AdamOptions adam_options(const ir::Attrs& attrs);

}  // namespace hearth::ops
