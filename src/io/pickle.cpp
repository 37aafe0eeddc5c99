#include "io/pickle.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"

namespace hearth::io {
namespace {

constexpr size_t kMaxObjectShown = 80;
/// Max number of values in a pickle. A tensor of a state dict takes about 12 values.
constexpr size_t kMaxValues = size_t{4} << 20;

/// Opcodes of pickles, with the values and meanings in Python's pickletools.
enum class Op : uint8_t {
  mark = '(',
  stop = '.',
  pop = '0',
  pop_mark = '1',
  none = 'N',
  new_true = 0x88,
  new_false = 0x89,
  int4 = 'J',
  int1 = 'K',
  int2 = 'M',
  long1 = 0x8a,
  real = 'G',
  unicode1 = 0x8c,
  unicode4 = 'X',
  unicode8 = 0x8d,
  string1 = 'U',
  string4 = 'T',
  bytes1 = 'C',
  bytes4 = 'B',
  bytes8 = 0x8e,
  empty_list = ']',
  append = 'a',
  appends = 'e',
  list = 'l',
  empty_tuple = ')',
  tuple = 't',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  empty_dict = '}',
  dict = 'd',
  set_item = 's',
  set_items = 'u',
  empty_set = 0x8f,
  add_items = 0x90,
  put1 = 'q',
  put4 = 'r',
  memoize = 0x94,
  get1 = 'h',
  get4 = 'j',
  global = 'c',
  stack_global = 0x93,
  reduce = 'R',
  new_object = 0x81,
  build = 'b',
  persistent_id = 'Q',
  protocol = 0x80,
  frame = 0x95,
};

}  // namespace

/// Interprets the opcodes of a pickle on a stack of values.
class PickleReader {
 public:
  using Kind = Pickle::Kind;
  using Id = Pickle::Id;

  PickleReader(std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
               std::string_view where, std::vector<Pickle::Value>& values)
      : bytes_(bytes), allowed_(allowed), where_(where), values_(values) {}

  Id read() {
    for (;;) {
      op_at_ = at_;
      const auto op = static_cast<Op>(take<uint8_t>());
      if (op == Op::stop) return pop();
      if (!read_scalar(op) && !read_container(op) && !read_memo(op) && !read_object(op))
        fail(fmt::format("opcode 0x{:02x} is not supported", static_cast<unsigned>(op)));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    user_error(
        "{}: cannot read its pickle at byte {}: {}; copy the file again, or save the weights again by "
        "torch.save(model.state_dict(), 'NEW.pt')",
        where_, op_at_, what);
  }

  std::string_view take_text(uint64_t size) {
    if (size > bytes_.size() - at_) fail("the data ends early");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }
  /// Reads a little-endian number.
  template <typename Number>
  Number take() {
    Number value = 0;
    std::memcpy(&value, take_text(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == rest.npos) fail("a name has no end");
    at_ += end + 1;
    return rest.substr(0, end);
  }
  int64_t take_long() {
    const auto size = take<uint8_t>();
    if (size > sizeof(int64_t)) fail("an integer has more than 64 bits");
    const std::string_view digits = take_text(size);
    uint64_t value = size > 0 && digits.back() < 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, digits.data(), size);
    return static_cast<int64_t>(value);
  }

  Id add(Pickle::Value value) {
    if (values_.size() == kMaxValues) fail(fmt::format("it has more than {} values", kMaxValues));
    values_.push_back(std::move(value));
    return static_cast<Id>(values_.size() - 1);
  }
  void push(Pickle::Value value) { stack_.push_back(add(std::move(value))); }
  size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  Id top() const {
    if (stack_.size() <= bottom()) fail("a value is missing");
    return stack_.back();
  }
  Id pop() {
    const Id id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop_last(size_t count) {
    if (stack_.size() - bottom() < count) fail("values are missing");
    std::vector<Id> items(stack_.end() - static_cast<int64_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  /// Pops the last mark and the values above it; returns the values.
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    std::vector<Id> items = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  /// Appends items to the container at the top of the stack.
  void extend(Kind kind, const std::vector<Id>& items) {
    Pickle::Value& container = values_[top()];
    const bool fits = container.kind == kind && (kind == Kind::list || items.size() % 2 == 0);
    if (!fits) fail("items are added to a value that is no list or dictionary");
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  bool read_scalar(Op op) {
    const auto integer = [&](int64_t value) { push({.kind = Kind::integer, .integer = value}); };
    const auto text = [&](uint64_t size) { push({.kind = Kind::text, .text = take_text(size)}); };
    switch (op) {
      case Op::none:
        push({});
        return true;
      case Op::new_true:
        push({.kind = Kind::boolean, .integer = 1});
        return true;
      case Op::new_false:
        push({.kind = Kind::boolean});
        return true;
      case Op::int1:
        integer(take<uint8_t>());
        return true;
      case Op::int2:
        integer(take<uint16_t>());
        return true;
      case Op::int4:
        integer(take<int32_t>());
        return true;
      case Op::long1:
        integer(take_long());
        return true;
      case Op::real:
        take_text(sizeof(double));
        push({.kind = Kind::real});
        return true;
      case Op::unicode1:
      case Op::string1:
      case Op::bytes1:
        text(take<uint8_t>());
        return true;
      case Op::unicode4:
      case Op::string4:
      case Op::bytes4:
        text(take<uint32_t>());
        return true;
      case Op::unicode8:
      case Op::bytes8:
        text(take<uint64_t>());
        return true;
      default:
        return false;
    }
  }

  bool read_container(Op op) {
    switch (op) {
      case Op::mark:
        marks_.push_back(stack_.size());
        return true;
      case Op::pop_mark:
        pop_to_mark();
        return true;
      case Op::pop:
        pop();
        return true;
      case Op::empty_list:
      case Op::empty_set:
      case Op::empty_tuple:
        push({.kind = Kind::list});
        return true;
      case Op::empty_dict:
        push({.kind = Kind::dict});
        return true;
      case Op::list:
      case Op::tuple:
        push({.kind = Kind::list, .items = pop_to_mark()});
        return true;
      case Op::tuple1:
        push({.kind = Kind::list, .items = pop_last(1)});
        return true;
      case Op::tuple2:
        push({.kind = Kind::list, .items = pop_last(2)});
        return true;
      case Op::tuple3:
        push({.kind = Kind::list, .items = pop_last(3)});
        return true;
      case Op::append:
        extend(Kind::list, pop_last(1));
        return true;
      case Op::add_items:
      case Op::appends:
        extend(Kind::list, pop_to_mark());
        return true;
      case Op::set_item:
        extend(Kind::dict, pop_last(2));
        return true;
      case Op::set_items:
        extend(Kind::dict, pop_to_mark());
        return true;
      case Op::dict: {
        std::vector<Id> items = pop_to_mark();
        push({.kind = Kind::dict});
        extend(Kind::dict, items);
        return true;
      }
      default:
        return false;
    }
  }

  bool read_memo(Op op) {
    const auto get = [&](uint32_t key) {
      const auto found = memo_.find(key);
      if (found == memo_.end()) fail("it refers to a value that was not stored");
      stack_.push_back(found->second);
    };
    switch (op) {
      case Op::put1:
        memo_[take<uint8_t>()] = top();
        return true;
      case Op::put4:
        memo_[take<uint32_t>()] = top();
        return true;
      case Op::memoize:
        memo_[static_cast<uint32_t>(memo_.size())] = top();
        return true;
      case Op::get1:
        get(take<uint8_t>());
        return true;
      case Op::get4:
        get(take<uint32_t>());
        return true;
      default:
        return false;
    }
  }

  bool read_object(Op op) {
    switch (op) {
      case Op::protocol:
        if (const auto version = take<uint8_t>(); version < 2 || version > 5)
          fail(fmt::format("protocol {} is not supported (2 to 5 are)", version));
        return true;
      case Op::frame:
        take<uint64_t>();
        return true;
      case Op::global: {
        const std::string_view module = take_line();
        push_name(module, take_line());
        return true;
      }
      case Op::stack_global: {
        const std::vector<Id> names = pop_last(2);
        push_name(values_[names[0]].text, values_[names[1]].text);
        return true;
      }
      case Op::reduce:
      case Op::new_object:
        push_call(pop_last(2));
        return true;
      // BUILD sets the attributes of an object. They are ignored, because no tensor is stored in them.
      case Op::build:
        pop();
        top();
        return true;
      case Op::persistent_id:
        push({.kind = Kind::persistent, .items = pop_last(1)});
        return true;
      default:
        return false;
    }
  }

  void push_name(std::string_view module, std::string_view name) {
    const std::string full = std::string(module) + "." + std::string(name);
    const auto found = std::ranges::find(allowed_, full);
    if (found == allowed_.end())
      user_error(
          "{}: it contains '{}', which is code or an object of a program; Hearth runs no code from files: "
          "where the weights were made, save them alone by torch.save(model.state_dict(), 'NEW.pt')",
          where_, shortened(full, kMaxObjectShown));
    push({.kind = Kind::name, .text = *found});
  }

  void push_call(std::vector<Id> parts) {
    const Pickle::Value& callee = values_[parts[0]];
    if (callee.kind != Kind::name || values_[parts[1]].kind != Kind::list)
      fail("a call has no name or no arguments");
    if (callee.text != "collections.OrderedDict")
      return push({.kind = Kind::call, .items = std::move(parts)});
    if (!values_[parts[1]].items.empty()) fail("an OrderedDict has arguments");
    push({.kind = Kind::dict});
  }

  std::span<const std::byte> bytes_;
  std::span<const std::string_view> allowed_;
  std::string_view where_;
  std::vector<Pickle::Value>& values_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;  ///< size of the stack at each MARK opcode
  std::unordered_map<uint32_t, Id> memo_;
  size_t at_ = 0, op_at_ = 0;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
               std::string_view where) {
  root_ = PickleReader(bytes, allowed, where, values_).read();
}

}  // namespace hearth::io
