#include "code_object.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "decode.h"

namespace machine_code {
namespace {

template <typename T>
T read(const std::byte* data, size_t offset) {
  T value;
  std::memcpy(&value, data + offset, sizeof value);
  return value;
}

/// MessagePack, as far as NT_AMDGPU_METADATA uses it.
struct Node {
  uint64_t number = 0;
  std::string text;
  std::vector<Node> list;
  std::map<std::string, Node> map;
};
class Reader {
 public:
  Reader(const std::byte* data, size_t bytes) : at_(data), end_(data + bytes) {}
  Node node() {
    Node made;
    const auto tag = static_cast<uint8_t>(byte());
    if (tag < 0x80)
      made.number = tag;
    else if (tag < 0x90)
      map(made, tag & 15);
    else if (tag < 0xa0)
      list(made, tag & 15);
    else if (tag < 0xc0)
      made.text = text(tag & 31);
    else if (tag == 0xc2 || tag == 0xc3)
      made.number = tag & 1;
    else if (tag >= 0xcc && tag <= 0xcf)
      made.number = big(1 << (tag - 0xcc));
    else if (tag >= 0xd0 && tag <= 0xd3)
      made.number = big(1 << (tag - 0xd0));
    else if (tag >= 0xd9 && tag <= 0xdb)
      made.text = text(big(1 << (tag - 0xd9)));
    else if (tag == 0xdc || tag == 0xdd)
      list(made, big(2 << (tag - 0xdc)));
    else if (tag == 0xde || tag == 0xdf)
      map(made, big(2 << (tag - 0xde)));
    else if (tag >= 0xe0)
      made.number = static_cast<uint64_t>(static_cast<int8_t>(tag));
    else if (tag != 0xc0)
      throw Fault{"metadata with the tag " + hex(tag)};
    return made;
  }

 private:
  std::byte byte() {
    if (at_ >= end_) throw Fault{"metadata that ends early"};
    return *at_++;
  }
  uint64_t big(int bytes) {
    uint64_t x = 0;
    while (bytes-- > 0) x = x << 8 | static_cast<uint64_t>(byte());
    return x;
  }
  std::string text(uint64_t bytes) {
    std::string made;
    while (bytes-- > 0) made += static_cast<char>(byte());
    return made;
  }
  void list(Node& made, uint64_t count) {
    while (count-- > 0) made.list.push_back(node());
  }
  void map(Node& made, uint64_t count) {
    while (count-- > 0) {
      std::string key = node().text;
      made.map[key] = node();
    }
  }
  const std::byte* at_;
  const std::byte* end_;
};

/// What a note says of each kernel; code objects that were joined have a note of each.
std::vector<Node> kernels_of(const std::byte* elf, const Elf64_Ehdr& head) {
  std::vector<Node> found;
  for (int i = 0; i < head.e_phnum; ++i) {
    const auto part = read<Elf64_Phdr>(elf, head.e_phoff + static_cast<size_t>(i) * sizeof(Elf64_Phdr));
    if (part.p_type != PT_NOTE) continue;
    for (uint64_t at = part.p_offset; at + sizeof(Elf64_Nhdr) < part.p_offset + part.p_filesz;) {
      const auto note = read<Elf64_Nhdr>(elf, at);
      at += sizeof note + (note.n_namesz + 3) / 4 * 4;
      const Node metadata = Reader(elf + at, note.n_descsz).node();
      at += (note.n_descsz + 3) / 4 * 4;
      const auto all = metadata.map.find("amdhsa.kernels");
      if (all != metadata.map.end())
        found.insert(found.end(), all->second.list.begin(), all->second.list.end());
    }
    return found;
  }
  return found;
}

std::map<std::string, Elf64_Sym> symbols_of(const std::byte* elf, const Elf64_Ehdr& head) {
  std::map<std::string, Elf64_Sym> found;
  auto section = [&](size_t i) { return read<Elf64_Shdr>(elf, head.e_shoff + i * sizeof(Elf64_Shdr)); };
  for (size_t i = 0; i < head.e_shnum; ++i) {
    const Elf64_Shdr symbols = section(i);
    if (symbols.sh_type == SHT_RELA && symbols.sh_size != 0) throw Fault{"a code object with relocations"};
    if (symbols.sh_type != SHT_DYNSYM) continue;
    const uint64_t names = section(symbols.sh_link).sh_offset;
    for (size_t k = 0; k < symbols.sh_size / sizeof(Elf64_Sym); ++k) {
      const auto symbol = read<Elf64_Sym>(elf, symbols.sh_offset + k * sizeof(Elf64_Sym));
      found[reinterpret_cast<const char*>(elf + names + symbol.st_name)] = symbol;
    }
  }
  return found;
}

}  // namespace

std::string hex(uint64_t x) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}

CodeObject::CodeObject(const std::byte* elf, size_t bytes) {
  const auto head = bytes < sizeof(Elf64_Ehdr) ? Elf64_Ehdr{} : read<Elf64_Ehdr>(elf, 0);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_machine != EM_AMDGPU)
    throw Fault{"not a code object of an AMD GPU"};
  // EF_AMDGPU_MACH of gfx1200 and gfx1201; gfx115x came later than these and has gfx11's instructions.
  const auto mach = head.e_flags & 0xff;
  generation_ = mach == 0x48 || mach == 0x4e ? 12 : 11;
  auto segment = [&](int i) {
    return read<Elf64_Phdr>(elf, head.e_phoff + static_cast<size_t>(i) * sizeof(Elf64_Phdr));
  };
  for (int i = 0; i < head.e_phnum; ++i) {
    if (segment(i).p_type == PT_LOAD)
      bytes_ = std::max<uint64_t>(bytes_, segment(i).p_vaddr + segment(i).p_memsz);
  }
  constexpr uint64_t kPage = 4096, kPrefetched = 64;
  bytes_ = (bytes_ + kPrefetched + kPage - 1) / kPage * kPage;
  void* image = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (image == MAP_FAILED) throw Fault{"no memory for a code object"};
  base_ = reinterpret_cast<uint64_t>(image);
  for (int i = 0; i < head.e_phnum; ++i) {
    const Elf64_Phdr part = segment(i);
    if (part.p_type == PT_LOAD)
      std::memcpy(static_cast<std::byte*>(image) + part.p_vaddr, elf + part.p_offset, part.p_filesz);
  }
  decoded_.resize(bytes_ / 4);
  const auto symbols = symbols_of(elf, head);
  for (const Node& node : kernels_of(elf, head)) {
    Kernel kernel{.object = this, .name = node.map.at(".name").text};
    const uint64_t at = symbols.at(node.map.at(".symbol").text).st_value;
    const std::byte* descriptor = static_cast<const std::byte*>(image) + at;
    kernel.lds_bytes = read<uint32_t>(descriptor, 0);
    kernel.scratch_bytes = read<uint32_t>(descriptor, 4);
    // The descriptor may leave the size to the metadata.
    kernel.argument_bytes = std::max(read<uint32_t>(descriptor, 8),
                                     static_cast<uint32_t>(node.map.at(".kernarg_segment_size").number));
    kernel.entry = base_ + at + static_cast<uint64_t>(read<int64_t>(descriptor, 16));
    kernel.code_bytes = symbols.at(kernel.name).st_size;
    kernel.rsrc1 = read<uint32_t>(descriptor, 48);
    kernel.rsrc2 = read<uint32_t>(descriptor, 52);
    kernel.properties = read<uint16_t>(descriptor, 56);
    if (const auto most = node.map.find(".max_flat_workgroup_size"); most != node.map.end())
      kernel.max_threads = static_cast<uint32_t>(most->second.number);
    if (const auto arguments = node.map.find(".args"); arguments != node.map.end()) {
      for (const Node& argument : arguments->second.list) {
        const auto name = argument.map.find(".name");
        kernel.arguments.push_back({static_cast<int>(argument.map.at(".offset").number),
                                    static_cast<int>(argument.map.at(".size").number),
                                    argument.map.at(".value_kind").text,
                                    name == argument.map.end() ? "" : name->second.text});
      }
    }
    kernels_[kernel.name] = std::move(kernel);
  }
}

CodeObject::~CodeObject() { munmap(reinterpret_cast<void*>(base_), bytes_); }

const Instruction& CodeObject::at(uint64_t address) const {
  if (address % 4 != 0 || !contains(address, 4))
    throw Fault{"a jump to " + hex(address) + ", where there is no code"};
  std::unique_ptr<Instruction>& known = decoded_[(address - base_) / 4];
  if (!known)
    known = std::make_unique<Instruction>(decode(generation_, reinterpret_cast<const uint32_t*>(address)));
  return *known;
}

Listing CodeObject::listing(const Kernel& kernel) const {
  Listing all;
  for (uint64_t at = kernel.entry; at < kernel.entry + kernel.code_bytes;) {
    const auto& known = decoded_[(at - base_) / 4];
    all.executed += known ? '1' : '0';
    at += static_cast<uint64_t>(known ? known->bytes : length_at(at, all.unknown));
  }
  return all;
}

int CodeObject::length_at(uint64_t address, std::set<std::string>& unknown) const {
  constexpr int kUnknown = 4;
  try {
    return decode(generation_, reinterpret_cast<const uint32_t*>(address)).bytes;
  } catch (const Fault& fault) {
    unknown.insert(fault.what);
    return kUnknown;
  }
}

}  // namespace machine_code
