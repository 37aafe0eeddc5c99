#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hearth::io {

/// A pickle, parsed into a graph of values without executing anything. Functions and classes ("module.name")
/// and the arguments of calls are stored as values; the user of the graph interprets them.
class Pickle {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,  ///< boolean: `integer` is 0 or 1
    integer,
    real,        ///< floating-point number; its value is not stored
    text,        ///< string or bytes: `text`
    list,        ///< list or tuple: items
    dict,        ///< dict or OrderedDict: items are key, value, key, value, ...
    name,        ///< function or class: text is one of the allowed names
    call,        ///< call of a function or class: items are the value of its name, and the list of arguments
    persistent,  ///< reference to an object outside of the pickle: items has one value, its id
  };
  using Id = uint32_t;
  /// A value of the pickle. The comments on Kind list the members that each kind uses. `text` points into the
  /// bytes of the pickle.
  struct Value {
    Kind kind = Kind::none;
    int64_t integer = 0;
    std::string_view text = {};
    std::vector<Id> items = {};
  };

  /// Parses pickle protocols 2 to 5, as written by torch.save. Values may share items and contain themselves.
  /// Memory and time are proportional to the size of `bytes`, which must outlive this object, as `allowed`
  /// must. `allowed`: names of functions and classes that may occur. Throws a UserError starting with `where`
  /// for another name, an unsupported opcode, or damage.
  Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, std::string_view where);

  const Value& root() const { return values_[root_]; }
  const Value& operator[](Id id) const { return values_[id]; }

 private:
  friend class PickleReader;
  std::vector<Value> values_;
  Id root_ = 0;
};

}  // namespace hearth::io
