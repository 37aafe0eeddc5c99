#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hearth::io {

/// A pickle parsed into a graph of values without executing anything. Names of functions and classes
/// ("module.name") and their arguments are stored unevaluated; the user of the graph interprets them.
class Pickle {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,  ///< integer is 0 or 1
    integer,
    real,        ///< the number is not stored
    text,        ///< strings and bytes
    list,        ///< items; tuples too
    dict,        ///< items: key, value, key, value, ...; an OrderedDict too
    name,        ///< text: one of the allowed names
    call,        ///< items: a name's value, and the list of its arguments
    persistent,  ///< items: one value, the id of an object that is stored elsewhere
  };
  using Id = uint32_t;
  /// A value of the pickle; which members are used depends on its kind. `text` points into the pickle's
  /// bytes.
  struct Value {
    Kind kind = Kind::none;
    int64_t integer = 0;
    std::string_view text = {};
    std::vector<Id> items = {};
  };

  /// Parses protocols 2 to 5, as written by torch.save. Values may share items and contain themselves. Memory
  /// and time are proportional to the size of `bytes`, which the texts point into. `allowed` must outlive
  /// this object. Throws a UserError starting with `where` for a name that is not in `allowed`, an
  /// unsupported opcode, or damage.
  Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, std::string_view where);

  const Value& root() const { return values_[root_]; }
  const Value& operator[](Id id) const { return values_[id]; }

 private:
  friend class PickleReader;
  std::vector<Value> values_;
  Id root_ = 0;
};

}  // namespace hearth::io
