#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"

namespace hearth::ir {

/// Indices into Graph::values and Graph::nodes. kNone marks an absent value (an optional input, no producer).
using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

/// Where a value or node stands in an array of all of them.
inline size_t index(int32_t id) { return static_cast<size_t>(id); }

/// Where a value's bytes live and who writes them.
enum class Role : uint8_t {
  activation,  ///< made by a node; lives in the arena from its producer to its last reader
  input,       ///< written by the caller before each run (images, labels): staging
  scalar,      ///< one f32 written by the caller before each run (learning rate, loss scale)
  parameter,   ///< trainable weight: persistent
  state,       ///< persistent, not trained (momentum, running mean)
  frozen,      ///< weight that nothing writes while training runs: persistent, in no checkpoint
  remote,      ///< state of another worker: has a place where all states are gathered, no bytes on the device
  carried,     ///< persistent between the programs of one update (gradient sums), in no checkpoint
};
std::string_view role_name(Role role);
/// Whether such a value lives in the persistent region.
constexpr bool is_persistent(Role role) { return role >= Role::parameter; }

/// dtype and shape of a value.
struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int64_t num_bytes() const { return shape.num_elements() * dtype_bytes(dtype); }
  bool operator==(const Type&) const = default;
};

struct Value {
  std::string name;
  Type type;
  Role role = Role::activation;
  NodeId producer = kNone;
};

}  // namespace hearth::ir
