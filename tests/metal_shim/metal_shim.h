// Runs the body of a Metal kernel on a CPU, and watches it. C++14, as Metal is.
//
// Each thread of a threadgroup is a fibre with a stack of its own; all of them take turns on one real
// thread, in an order that is fixed and differs from group to group. What goes unnoticed on a GPU is an
// error here: a read or write out of bounds; two threads that touch the same number of threadgroup
// memory, one of them writing, without a barrier between; a barrier or a simd_ function that not all
// threads reach; an output written twice; threadgroup memory that is read before it was written.
#pragma once
#include <csetjmp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include <ucontext.h>

using uint = std::uint32_t;
using ushort = std::uint16_t;
struct uint2 { uint x, y; };
struct uint3 { uint x, y, z; };
using half = _Float16;
using float16_t = half;

// The upper half of a float, rounded to nearest, ties to even.
struct bfloat16_t {
    std::uint16_t bits;
    bfloat16_t() = default;
    explicit bfloat16_t(float x) {
        std::uint32_t u;
        std::memcpy(&u, &x, 4);
        bits = std::isnan(x) ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    }
    operator float() const {
        std::uint32_t u = std::uint32_t(bits) << 16;
        float x;
        std::memcpy(&x, &u, 4);
        return x;
    }
};

namespace shim {

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

enum class Wait { none, simdgroup, threadgroup, done };

struct Fibre {
    std::vector<char> stack;
    ucontext_t start;
    jmp_buf here;
    bool started = false;
    Wait wait = Wait::none;
    int line = 0;       // where it waits
    double given = 0;   // what it brings to a simd_ function
    double taken[32];   // what all lanes brought
};

struct Shared {  // one array in threadgroup memory, and who touched what since the last barrier
    std::vector<unsigned char> bytes;
    std::vector<int> writer, reader;  // thread, -1 nobody, -2 several (readers only)
    std::vector<bool> written;
};

class Group {
public:
    uint threads = 0, lanes = 32, current = 0;
    std::vector<Fibre> fibres;
    std::map<std::string, Shared> shared;
    void (*body)(void*, uint) = nullptr;
    void* context = nullptr;
    std::string fault;

    void run(uint count, void (*work)(void*, uint), void* argument, bool backwards) {
        threads = count, body = work, context = argument;
        shared.clear();
        if (fibres.size() < count) fibres.resize(count);
        for (uint t = 0; t < count; t++) fibres[t].started = false, fibres[t].wait = Wait::none;
        const uint simdgroups = (count + lanes - 1) / lanes;
        for (;;) {
            for (uint s = 0; s < simdgroups; s++) {
                advance(backwards ? simdgroups - 1 - s : s, backwards);
                if (!fault.empty()) fail(fault);
            }
            if (all(0, count, Wait::done)) return;
            if (!all(0, count, Wait::threadgroup)) fail("not all threads reach the barrier in " + where(0, count));
            for (uint t = 0; t < count; t++) fibres[t].wait = Wait::none;
            forget(0, count);
        }
    }

    // Called by a fibre: lets the others go on until all that have to be here are.
    void pause(Wait wait, int line) {
        Fibre& mine = fibres[current];
        mine.wait = wait, mine.line = line;
        if (_setjmp(mine.here) == 0) _longjmp(back, 1);
    }
    Fibre& self() { return fibres[current]; }

private:
    jmp_buf back;

    // Let the threads of one simdgroup run until they all are at a barrier, or at their end.
    void advance(uint simdgroup, bool backwards) {
        const uint low = simdgroup * lanes, high = std::min(low + lanes, threads);
        for (;;) {
            for (uint i = low; i < high; i++) {
                const uint t = backwards ? high - 1 - (i - low) : i;
                if (fibres[t].wait == Wait::none) resume(t);
                if (!fault.empty()) return;
            }
            bool any = false;
            for (uint t = low; t < high; t++) any = any || fibres[t].wait == Wait::simdgroup;
            if (!any) return;
            if (!all(low, high, Wait::simdgroup)) { fault = "not all lanes reach the simd_ function in " + where(low, high); return; }
            for (uint t = low; t < high; t++) {
                for (uint other = low; other < high; other++) fibres[t].taken[other - low] = fibres[other].given;
                fibres[t].wait = Wait::none;
            }
        }
    }

    void resume(uint t) {
        current = t;
        if (_setjmp(back) != 0) return;
        if (fibres[t].started) _longjmp(fibres[t].here, 1);
        Fibre& fibre = fibres[t];
        fibre.started = true;
        fibre.stack.resize(1 << 16);
        getcontext(&fibre.start);
        fibre.start.uc_stack.ss_sp = fibre.stack.data();
        fibre.start.uc_stack.ss_size = fibre.stack.size();
        fibre.start.uc_link = nullptr;
        makecontext(&fibre.start, reinterpret_cast<void (*)()>(&Group::enter), 0);
        setcontext(&fibre.start);
    }

    static void enter();

    bool all(uint low, uint high, Wait wait) const {
        for (uint t = low; t < high; t++)
            if (fibres[t].wait != wait || fibres[t].line != fibres[low].line) return false;
        return true;
    }

    std::string where(uint low, uint high) const {
        std::string text;
        for (uint t = low; t < high; t++) {
            const Fibre& f = fibres[t];
            const std::string one = f.wait == Wait::done ? "the end" : "line " + std::to_string(f.line);
            if (text.find(one) == std::string::npos) text += (text.empty() ? "" : ", ") + one;
        }
        return text;
    }

    void forget(uint, uint) {
        for (auto& entry : shared) {
            std::fill(entry.second.writer.begin(), entry.second.writer.end(), -1);
            std::fill(entry.second.reader.begin(), entry.second.reader.end(), -1);
        }
    }
};

inline Group& group() { static Group one; return one; }

inline void Group::enter() {
    Group& g = group();
    const uint t = g.current;
    try {
        g.body(g.context, t);
    } catch (const std::exception& e) {
        g.fault = e.what();
    }
    g.fibres[t].line = 0;
    g.fibres[t].wait = Wait::done;
    _longjmp(g.back, 1);
}

// A number that notices being written.
template <class T, class Owner> struct Place {
    Owner owner;
    long index;
    operator T() const { return owner.read(index); }
    const Place& operator=(T x) const { owner.write(index, x); return *this; }
    const Place& operator=(const Place& x) const { return *this = T(x); }
    const Place& operator+=(T x) const { return *this = T(*this) + x; }
};

template <class T, long N> class SharedArray {  // threadgroup T name[N]
public:
    explicit SharedArray(const char* name) : name_(name), memory_(&group().shared[name]) {
        if (!memory_->bytes.empty()) return;
        memory_->bytes.assign(N * sizeof(T), 0xff);
        memory_->writer.assign(N, -1), memory_->reader.assign(N, -1);
        memory_->written.assign(N, false);
    }
    Place<T, const SharedArray&> operator[](long i) const { return {*this, i}; }
    T read(long i) const {
        check(i);
        if (!memory_->written[i]) fail(text(i) + " is read before it was written");
        const int me = group().current;
        if (memory_->writer[i] >= 0 && memory_->writer[i] != me) fail(text(i) + " is read without a barrier after another thread wrote it");
        int& reader = memory_->reader[i];
        reader = reader == -1 || reader == me ? me : -2;
        return reinterpret_cast<const T*>(memory_->bytes.data())[i];
    }
    void write(long i, T x) const {
        check(i);
        const int me = group().current;
        if (memory_->writer[i] >= 0 && memory_->writer[i] != me) fail(text(i) + " is written by two threads without a barrier");
        if (memory_->reader[i] != -1 && memory_->reader[i] != me) fail(text(i) + " is written without a barrier after another thread read it");
        memory_->writer[i] = me;
        memory_->written[i] = true;
        reinterpret_cast<T*>(memory_->bytes.data())[i] = x;
    }
private:
    void check(long i) const { if (i < 0 || i >= N) fail(text(i) + " is out of bounds, it has " + std::to_string(N)); }
    std::string text(long i) const { return std::string(name_) + "[" + std::to_string(i) + "]"; }
    const char* name_;
    Shared* memory_;
};

struct device_space {};
struct constant_space {};

// What pointer[i] is: a number, or the place of one.
template <class T, class Owner> struct Element {
    using type = Place<T, Owner>;
    static type at(const Owner& owner, long i) { return {owner, i}; }
};
template <class T, class Owner> struct Element<const T, Owner> {
    using type = T;
    static type at(const Owner& owner, long i) { return owner.read(i); }
};

// A pointer into a buffer that knows its buffer: every access is checked.
template <class T, class Space> class Pointer {
public:
    Pointer(T* data, long size, const char* name, std::vector<bool>* written)
        : data_(data), size_(size), at_(0), name_(name), written_(written) {}
    Pointer operator+(long n) const { Pointer p = *this; p.at_ += n; return p; }
    Pointer operator-(long n) const { return *this + -n; }
    Pointer& operator+=(long n) { at_ += n; return *this; }
    Pointer& operator++() { return *this += 1; }
    Pointer operator++(int) { Pointer p = *this; ++*this; return p; }
    typename Element<T, Pointer>::type operator[](long i) const { return Element<T, Pointer>::at(*this, i); }
    typename Element<T, Pointer>::type operator*() const { return (*this)[0]; }
    T read(long i) const { return data_[check(i)]; }
    void write(long i, T x) const {
        const long place = check(i);
        if ((*written_)[place]) fail(std::string(name_) + "[" + std::to_string(place) + "] is written twice");
        (*written_)[place] = true;
        data_[place] = x;
    }
private:
    long check(long i) const {
        if (at_ + i < 0 || at_ + i >= size_)
            fail(std::string(name_) + "[" + std::to_string(at_ + i) + "] is out of bounds, it has " + std::to_string(size_));
        return at_ + i;
    }
    T* data_;
    long size_, at_;
    const char* name_;
    std::vector<bool>* written_;
};

template <class Body> struct Call {
    Body* body;
    uint3 group_at, size;
    static void thread(void* self, uint t) {
        Call& c = *static_cast<Call*>(self);
        const uint3 at{t % c.size.x, t / c.size.x % c.size.y, t / (c.size.x * c.size.y)};
        (*c.body)(c.group_at, at, t, c.size);
    }
};

// Run `body(threadgroup, thread in it, its index, size of the group)` for `grid` threads.
template <class Body> void launch(uint3 grid, uint3 most, Body body) {
    Group& g = group();
    g.fault.clear();
    bool backwards = false;
    for (uint z = 0; z < grid.z; z += most.z)
        for (uint y = 0; y < grid.y; y += most.y)
            for (uint x = 0; x < grid.x; x += most.x) {
                const uint3 size{std::min(most.x, grid.x - x), std::min(most.y, grid.y - y), std::min(most.z, grid.z - z)};
                Call<Body> call{&body, {x / most.x, y / most.y, z / most.z}, size};
                g.run(size.x * size.y * size.z, &Call<Body>::thread, &call, backwards);
                backwards = !backwards;
            }
}

// Wait for all lanes; `combine(values, lanes, own lane)` of what they bring.
template <class T, class F> T together(T x, F combine, int line) {
    Group& g = group();
    const uint low = g.current / g.lanes * g.lanes;
    const int count = std::min(g.lanes, g.threads - low), lane = g.current - low;
    g.self().given = double(x);
    g.pause(Wait::simdgroup, line);
    return T(combine(g.self().taken, count, lane));
}

}  // namespace shim

namespace metal {
// No templates: the arguments may be places in checked memory.
inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline int max(int a, int b) { return a < b ? b : a; }
inline int min(int a, int b) { return b < a ? b : a; }
inline uint max(uint a, uint b) { return a < b ? b : a; }
inline uint min(uint a, uint b) { return b < a ? b : a; }
inline float exp(float x) { return std::exp(x); }
inline float log(float x) { return std::log(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags, int line = __builtin_LINE()) { shim::group().pause(shim::Wait::threadgroup, line); }
inline float simd_sum(float x, int line = __builtin_LINE()) {
    return shim::together(x, [](const double* v, int n, int) {
        float sums[32];
        for (int i = 0; i < n; i++) sums[i] = float(v[i]);
        for (int step = 1; step < n; step *= 2)  // as neighbours are added on a GPU
            for (int i = 0; i + step < n; i += 2 * step) sums[i] += sums[i + step];
        return double(sums[0]);
    }, line);
}
inline float simd_max(float x, int line = __builtin_LINE()) {
    return shim::together(x, [](const double* v, int n, int) {
        double most = v[0];
        for (int i = 1; i < n; i++) most = std::fmax(most, v[i]);
        return most;
    }, line);
}
template <class T> T simd_shuffle(T x, ushort from, int line = __builtin_LINE()) {
    return shim::together(x, [from](const double* v, int, int) { return v[from]; }, line);
}
template <class T> T simd_shuffle_down(T x, ushort by, int line = __builtin_LINE()) {
    return shim::together(x, [by](const double* v, int n, int lane) { return v[lane + by < n ? lane + by : lane]; }, line);
}
template <class T> T simd_shuffle_xor(T x, ushort mask, int line = __builtin_LINE()) {
    return shim::together(x, [mask](const double* v, int, int lane) { return v[lane ^ mask]; }, line);
}
template <class T> T simd_broadcast(T x, ushort from, int line = __builtin_LINE()) { return simd_shuffle(x, from, line); }
}  // namespace metal
using namespace metal;
