#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"

namespace hearth::ir {

/// Indices into Graph::values and Graph::nodes. kNone: an absent optional input, or no producer.
using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

/// Converts an id to an array index.
inline size_t index(int32_t id) { return static_cast<size_t>(id); }

/// Storage of a value, and what writes the value.
enum class Role : uint8_t {
  activation,  ///< computed by a node; stored in the arena from its producer to its last reader
  input,       ///< written by the caller before each run (images, labels), in staging buffers
  scalar,      ///< a single f32 written by the caller before each run (learning rate, loss scale)
  parameter,   ///< trainable weight, persistent
  state,       ///< persistent, not trained (momentum, running mean)
  frozen,      ///< weight that is never written during training: persistent, not in checkpoints
  /// State of another worker: takes part when a worker gathers states, but has no bytes on this device.
  remote,
  carried,  ///< persistent between the programs of one optimizer update (gradient sums), not in checkpoints
};
/// Returns the name of a role in the text form.
std::string_view role_name(Role role);
/// True if values of this role are stored in the persistent region, which programs of a run share.
constexpr bool is_persistent(Role role) { return role >= Role::parameter; }

/// Dtype and shape of a value.
struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int64_t num_bytes() const { return shape.num_elements() * dtype_bytes(dtype); }
  bool operator==(const Type&) const = default;
};

/// An edge of the graph: a tensor with its name, type and producing node.
struct Value {
  std::string name;
  Type type;
  Role role = Role::activation;
  NodeId producer = kNone;
};

}  // namespace hearth::ir
