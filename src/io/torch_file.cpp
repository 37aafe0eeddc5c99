#include "io/torch_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "io/pickle.h"
#include "io/zip.h"

namespace hearth::io {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr ZipWords kTorchWords{.file = "a file of torch.save", .members = "storages"};
constexpr int64_t kMaxPickleBytes = 32 << 20;
/// Max nesting depth of dictionaries, and of Parameter objects around a tensor.
constexpr int kMaxDepth = 4;
constexpr size_t kMaxKeyBytes = 64;
constexpr size_t kMaxTextShown = 60, kMaxKeysShown = 8;

struct TorchType {
  std::string_view storage, name;
  DType dtype;
};
constexpr auto kTorchTypes =
    std::to_array<TorchType>({{"torch.FloatStorage", "torch.float32", DType::f32},
                              {"torch.HalfStorage", "torch.float16", DType::f16},
                              {"torch.BFloat16Storage", "torch.bfloat16", DType::bf16},
                              {"torch.DoubleStorage", "torch.float64", DType::f64},
                              {"torch.LongStorage", "torch.int64", DType::i64},
                              {"torch.IntStorage", "torch.int32", DType::i32},
                              {"torch.ShortStorage", "torch.int16", DType::i16},
                              {"torch.CharStorage", "torch.int8", DType::i8},
                              {"torch.ByteStorage", "torch.uint8", DType::u8},
                              {"torch.BoolStorage", "torch.bool", DType::boolean},
                              {"", "torch.float8_e4m3fn", DType::f8_e4m3},
                              {"", "torch.float8_e5m2", DType::f8_e5m2}});

constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";
/// Functions of torch by which a pickle rebuilds a tensor from its storage, or wraps another tensor.
constexpr std::string_view kTensor3 = "torch._utils._rebuild_tensor_v3",
                           kTyped = "torch._tensor._rebuild_from_type_v2";
constexpr auto kTensors = std::to_array<std::string_view>(
    {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", kTensor3});
constexpr auto kParameters = std::to_array<std::string_view>(
    {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"});
/// Allowed classes and functions of other objects in checkpoints; these objects are skipped.
constexpr auto kSkipped = std::to_array<std::string_view>({"collections.OrderedDict",
                                                           "collections.defaultdict",
                                                           "collections.Counter",
                                                           "argparse.Namespace",
                                                           "torch.Tensor",
                                                           "torch.nn.parameter.Parameter",
                                                           "torch.Size",
                                                           "torch.device",
                                                           "__builtin__.set",
                                                           "builtins.set",
                                                           "__builtin__.dict",
                                                           "builtins.dict",
                                                           "__builtin__.list",
                                                           "builtins.list",
                                                           "_codecs.encode",
                                                           "numpy.dtype",
                                                           "numpy.core.multiarray.scalar",
                                                           "numpy._core.multiarray.scalar",
                                                           "pathlib.Path",
                                                           "pathlib.PosixPath"});
/// Keys of a checkpoint that may contain the weights, in order of preference.
constexpr auto kModelKeys = std::to_array<std::string_view>(
    {"state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params", "ema",
     "model_ema", "ema_state_dict", "params_ema"});
constexpr auto kWrapperPrefixes = std::to_array<std::string_view>({"module.", "_orig_mod."});
/// Name of the counter in torch's AveragedModel, which is not a weight.
constexpr std::string_view kNumAveraged = "n_averaged";

template <size_t n>
bool is_among(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<std::string_view> allowed_names() {
  std::vector<std::string_view> names = {kUntyped, kTyped};
  names.insert(names.end(), kTensors.begin(), kTensors.end());
  names.insert(names.end(), kParameters.begin(), kParameters.end());
  names.insert(names.end(), kSkipped.begin(), kSkipped.end());
  for (const TorchType& known : kTorchTypes) {
    if (!known.storage.empty()) names.push_back(known.storage);
    names.push_back(known.name);
  }
  return names;
}

/// Reads the tensors of one file of torch.save.
class TorchReader {
 public:
  TorchReader(std::span<const std::byte> bytes, std::string_view where)
      : where_(where),
        file_bytes_(std::ssize(bytes)),
        members_(open(bytes)),
        allowed_(allowed_names()),
        pickle_(pickled(), allowed_, where) {}

  TorchTensors read() {
    const Value& dict = find_state_dict(pickle_.root(), 0);
    check_keys(dict);
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const Value &key = pickle_[dict.items[i]], &value = pickle_[dict.items[i + 1]];
      if (key.kind == Kind::text && is_tensor(value)) add(std::string(key.text), value, 0);
    }
    remove_prefixes();
    std::ranges::sort(made_.tensors, {}, &TensorView::name);
    return std::move(made_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    user_error("{}: the file {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// Throws a UserError if two keys of the dictionary are equal. Names are copied once per key, so this also
  /// limits the total size of the names to that of the pickle.
  void check_keys(const Value& dict) const {
    std::vector<Pickle::Id> ids;
    for (size_t i = 0; i < dict.items.size(); i += 2)
      if (pickle_[dict.items[i]].kind == Kind::text) ids.push_back(dict.items[i]);
    const auto text_of_id = [&](Pickle::Id id) { return pickle_[id].text; };
    const auto refuse_twice = [&](auto found) {
      if (found != ids.end())
        refuse("contains two tensors named '{}'; save it again with unique names",
               shortened(text_of_id(*found), kMaxTextShown));
    };
    std::ranges::sort(ids);
    refuse_twice(std::ranges::adjacent_find(ids));
    std::ranges::sort(ids, {}, text_of_id);
    refuse_twice(std::ranges::adjacent_find(ids, {}, text_of_id));
  }

  /// Reads the zip directory; returns its members by their names without the archive's outermost folder.
  std::map<std::string, ZipMember, std::less<>> open(std::span<const std::byte> bytes) {
    std::map<std::string, ZipMember, std::less<>> members;
    std::vector<std::pair<const std::byte*, size_t>> ranges;
    for (ZipMember& member : read_zip_directory(bytes, where_, kTorchWords)) {
      const std::string name = member.name.substr(std::min(member.name.find('/') + 1, member.name.size()));
      if (!member.packed.empty()) ranges.emplace_back(member.packed.data(), member.packed.size());
      if (!members.emplace(name, std::move(member)).second)
        refuse("contains two zip members '{}'; it is damaged, copy it again", shortened(name, kMaxTextShown));
    }
    std::ranges::sort(ranges);
    for (size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i - 1].first + ranges[i - 1].second > ranges[i].first)
        refuse("contains zip members that overlap; it is damaged, copy it again");
    return members;
  }

  std::span<const std::byte> pickled() const {
    const auto found = members_.find("data.pkl");
    if (found == members_.end())
      user_error(
          "{}: this zip archive has no data.pkl, so it is not a file of torch.save; choose one that is",
          where_);
    if (members_.contains("constants.pkl"))
      user_error(
          "{0}: expected a state dict, got a TorchScript program; convert it: python3 -c \"import torch; "
          "torch.save(torch.jit.load('{0}', map_location='cpu').state_dict(), '{0}.state.pt')\"",
          where_);
    for (const auto& [name, member] : members_)
      if (member.is_deflated)
        user_error(
            "{}: '{}' is compressed, but torch.save does not compress; save the weights again by torch.save",
            where_, shortened(member.name, kMaxTextShown));
    const auto order = members_.find("byteorder");
    if (order != members_.end() && text_of(order->second) != "little")
      user_error("{}: its numbers are {}-endian, not little-endian; save it again on another computer",
                 where_, shortened(text_of(order->second), kMaxTextShown));
    if (found->second.size > kMaxPickleBytes)
      user_error("{}: it has {} of data besides the tensors, more than {}; save only model.state_dict()",
                 where_, human_bytes(found->second.size), human_bytes(kMaxPickleBytes));
    return found->second.packed;
  }
  static std::string_view text_of(const ZipMember& member) {
    return {reinterpret_cast<const char*>(member.packed.data()), member.packed.size()};
  }

  const Value& item(const Value& value, size_t i) const {
    static const Value none;
    return i < value.items.size() ? pickle_[value.items[i]] : none;
  }
  std::string_view callee_of(const Value& value) const {
    return value.kind == Kind::call ? item(value, 0).text : std::string_view();
  }
  bool is_tensor(const Value& value) const {
    const std::string_view callee = callee_of(value);
    return callee == kTyped || is_among(callee, kTensors) || is_among(callee, kParameters);
  }
  bool has_tensors(const Value& dict) const {
    if (dict.kind != Kind::dict) return false;
    for (size_t i = 1; i < dict.items.size(); i += 2)
      if (is_tensor(pickle_[dict.items[i]])) return true;
    return false;
  }
  const Value* find_dict(const Value& dict, std::string_view key) const {
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      if (pickle_[dict.items[i]].text == key && pickle_[dict.items[i + 1]].kind == Kind::dict)
        return &pickle_[dict.items[i + 1]];
    }
    return nullptr;
  }

  const Value& find_state_dict(const Value& value, int depth) const {
    if (value.kind != Kind::dict || depth > kMaxDepth) refuse_contents(value);
    for (const std::string_view key : kModelKeys)
      if (const Value* inner = find_dict(value, key)) return find_state_dict(*inner, depth + 1);
    if (has_tensors(value)) return value;
    const Value* only = nullptr;
    std::set<Pickle::Id> seen;
    for (size_t i = 1; i < value.items.size(); i += 2) {
      const Value& inner = pickle_[value.items[i]];
      if (!seen.insert(value.items[i]).second || !has_tensors(inner)) continue;
      if (only != nullptr) refuse_contents(value);
      only = &inner;
    }
    if (only == nullptr) refuse_contents(value);
    return *only;
  }
  [[noreturn]] void refuse_contents(const Value& value) const {
    std::vector<std::string> keys;
    for (size_t i = 0; value.kind == Kind::dict && i < value.items.size() && keys.size() < kMaxKeysShown;
         i += 2)
      keys.push_back(fmt::format("'{}'", shortened(pickle_[value.items[i]].text, kMaxTextShown)));
    user_error(
        "{}: expected a state dict (tensors by their names, alone or under 'model' or 'state_dict'), found "
        "{}; save model.state_dict()",
        where_, keys.empty() ? "none" : fmt::format("the keys {}", fmt::join(keys, ", ")));
  }

  void add(std::string name, const Value& value, int depth) {
    const std::string_view callee = callee_of(value);
    const Value& arguments = item(value, 1);
    if (is_among(callee, kTensors)) {
      made_.tensors.push_back(view_of(std::move(name), arguments, callee == kTensor3));
    } else if (depth < kMaxDepth && is_among(callee, kParameters)) {
      add(std::move(name), item(arguments, 0), depth + 1);
    } else if (depth < kMaxDepth && callee == kTyped && is_among(item(arguments, 0).text, kTensors)) {
      made_.tensors.push_back(
          view_of(std::move(name), item(arguments, 2), item(arguments, 0).text == kTensor3));
    } else {
      refuse("contains '{}', which is no plain tensor (sparse or quantized?); save it as one",
             shortened(name, kMaxTextShown));
    }
  }

  std::vector<int64_t> integers(const Value& list, std::string_view name) const {
    if (list.kind != Kind::list || list.items.size() > Shape::kMaxRank)
      refuse("contains the tensor '{}' of more than {} axes; reshape it to fewer",
             shortened(name, kMaxTextShown), Shape::kMaxRank);
    std::vector<int64_t> numbers;
    for (const Pickle::Id id : list.items) {
      const Value& number = pickle_[id];
      if (number.kind != Kind::integer || number.integer < 0)
        refuse("contains the tensor '{}' with an invalid shape; it is damaged, copy it again",
               shortened(name, kMaxTextShown));
      numbers.push_back(number.integer);
    }
    return numbers;
  }

  /// Returns the bytes of a storage and its element type; no type for an untyped storage, where the tensor
  /// has it.
  std::pair<std::span<const std::byte>, std::optional<DType>> storage_of(const Value& value,
                                                                         std::string_view name) const {
    const Value& id = item(value, 0);
    const Value &type = item(id, 1), &key = item(id, 2);
    const bool is_storage = value.kind == Kind::persistent && id.kind == Kind::list &&
                            key.text.size() <= kMaxKeyBytes && item(id, 0).text == "storage" &&
                            type.kind == Kind::name && key.kind == Kind::text;
    if (!is_storage)
      refuse("contains the tensor '{}' without data; it is damaged, copy it again",
             shortened(name, kMaxTextShown));
    const auto member = members_.find("data/" + std::string(key.text));
    if (member == members_.end())
      refuse("has no member 'data/{}', the data of the tensor '{}'; it is incomplete, copy it again",
             shortened(key.text, kMaxTextShown), shortened(name, kMaxTextShown));
    const auto known = std::ranges::find(kTorchTypes, type.text, &TorchType::storage);
    if (known == kTorchTypes.end()) {
      if (type.text != kUntyped)
        refuse("contains the tensor '{}' of the unsupported type '{}'; save it as float32",
               shortened(name, kMaxTextShown), shortened(type.text, kMaxTextShown));
      return {member->second.packed, std::nullopt};
    }
    return {member->second.packed, known->dtype};
  }

  /// Rebuilds a tensor from (storage, offset, size, stride, requires_grad, hooks[, dtype of version 3]).
  TensorView view_of(std::string name, const Value& arguments, bool has_dtype) {
    auto [storage, dtype] = storage_of(item(arguments, 0), name);
    if (has_dtype) {
      const auto known = std::ranges::find(kTorchTypes, item(arguments, 6).text, &TorchType::name);
      if (known == kTorchTypes.end())
        refuse("contains the tensor '{}' of the unsupported type '{}'; save it as float32",
               shortened(name, kMaxTextShown), shortened(item(arguments, 6).text, kMaxTextShown));
      dtype = known->dtype;
    }
    const Value& offset = item(arguments, 1);
    if (!dtype || offset.kind != Kind::integer || offset.integer < 0)
      refuse("contains the tensor '{}' without a type or an offset; it is damaged, copy it again",
             shortened(name, kMaxTextShown));
    const std::vector<int64_t> sizes = integers(item(arguments, 2), name),
                               strides = integers(item(arguments, 3), name);
    if (sizes.size() != strides.size())
      refuse("contains the tensor '{}' of {} sizes and {} strides; it is damaged, copy it again",
             shortened(name, kMaxTextShown), sizes.size(), strides.size());
    TensorView view{.name = std::move(name), .dtype = *dtype};
    view.shape = shape_of(sizes, view.name);
    const auto item_bytes = static_cast<size_t>(dtype_bytes(*dtype));
    const auto first = static_cast<size_t>(offset.integer);
    const auto count = static_cast<size_t>(view.shape.num_elements());
    const size_t room = storage.size() / item_bytes;
    if (count == 0) return view;
    if (first > room || count > room - first) refuse_outside(view.name);
    const auto rest = storage.subspan(first * item_bytes);
    if (is_row_major(sizes, strides)) {
      view.bytes = rest.first(count * item_bytes);
    } else {
      view.bytes = copied(view, strides, rest, item_bytes);
    }
    return view;
  }
  Shape shape_of(const std::vector<int64_t>& sizes, std::string_view name) const {
    try {
      return Shape(sizes);
    } catch (const UserError& error) {
      refuse("contains the tensor '{}': {}", shortened(name, kMaxTextShown), error.what());
    }
  }
  [[noreturn]] void refuse_outside(std::string_view name) const {
    refuse("has less data than the tensor '{}' needs; it is incomplete or damaged, copy it again",
           shortened(name, kMaxTextShown));
  }

  static bool is_row_major(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    int64_t expected = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      if (sizes[i] != 1 && strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }

  /// Copies a tensor with any strides to row-major order. Throws a UserError if its elements overlap.
  std::span<const std::byte> copied(const TensorView& view, const std::vector<int64_t>& strides,
                                    std::span<const std::byte> from, size_t item_bytes) {
    const Shape& shape = view.shape;
    const int rank = shape.rank();
    std::vector<int> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int axis) { return strides[static_cast<size_t>(axis)]; });
    int64_t last = 0;
    const auto room = static_cast<int64_t>(from.size() / item_bytes);
    for (const int axis : order) {
      const int64_t stride = strides[static_cast<size_t>(axis)];
      if (shape[axis] == 1) continue;
      if (stride <= last)
        refuse("contains the tensor '{}' whose elements overlap; save its .contiguous()",
               shortened(view.name, kMaxTextShown));
      if (stride > (room - 1 - last) / (shape[axis] - 1)) refuse_outside(view.name);
      last += stride * (shape[axis] - 1);
    }
    const auto count = shape.num_elements();
    num_copied_ += count * static_cast<int64_t>(item_bytes);
    if (num_copied_ > file_bytes_)
      refuse(
          "contains tensors that share elements and would need more bytes than the file has; save their "
          ".contiguous()");
    std::vector<std::byte>& copy = made_.copies.emplace_back(static_cast<size_t>(count) * item_bytes);
    std::array<int64_t, Shape::kMaxRank> at{};
    int64_t offset = 0;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(copy.data() + static_cast<size_t>(i) * item_bytes,
                  from.data() + static_cast<size_t>(offset) * item_bytes, item_bytes);
      for (int axis = rank - 1; axis >= 0; --axis) {
        const auto a = static_cast<size_t>(axis);
        offset += strides[a];
        if (++at[a] < shape[axis]) break;
        offset -= strides[a] * shape[axis];
        at[a] = 0;
      }
    }
    return copy;
  }

  /// Removes the prefixes that DistributedDataParallel, torch.compile and AveragedModel add to all names.
  void remove_prefixes() {
    std::vector<TensorView>& tensors = made_.tensors;
    // The two prefixes may be nested in either order, so the first one is tried again at the end.
    for (const std::string_view prefix : {kWrapperPrefixes[0], kWrapperPrefixes[1], kWrapperPrefixes[0]}) {
      const auto has = [&](const TensorView& one) { return one.name.starts_with(prefix); };
      const auto is_counter = [](const TensorView& one) { return one.name == kNumAveraged; };
      const auto fits = [&](const TensorView& one) { return has(one) || is_counter(one); };
      if (!std::ranges::any_of(tensors, has) || !std::ranges::all_of(tensors, fits)) continue;
      std::erase_if(tensors, is_counter);
      for (TensorView& tensor : tensors) tensor.name.erase(0, prefix.size());
    }
  }

  std::string_view where_;
  int64_t file_bytes_;
  std::map<std::string, ZipMember, std::less<>> members_;
  std::vector<std::string_view> allowed_;
  Pickle pickle_;
  TorchTensors made_;
  int64_t num_copied_ = 0;
};

}  // namespace

TorchTensors parse_torch_file(std::span<const std::byte> bytes, std::string_view where) {
  return TorchReader(bytes, where).read();
}

TorchFile::TorchFile(const fs::path& path)
    : file_(path), read_(parse_torch_file(file_.bytes(), path.string())) {}

}  // namespace hearth::io
